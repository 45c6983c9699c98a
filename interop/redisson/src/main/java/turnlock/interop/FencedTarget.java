package turnlock.interop;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import org.redisson.api.RFencedLock;

/** A fenced lock: each hold has a token. */
final class FencedTarget extends LockTarget {
    private final RFencedLock lock;

    FencedTarget(RFencedLock lock) {
        super(lock);
        this.lock = lock;
    }

    @Override
    public Object call(String method, Arguments arguments) throws Exception {
        return switch (method + "/" + arguments.count()) {
            case "lockAndGetToken/0" -> lock.lockAndGetToken();
            case "lockAndGetToken/1" -> lock.lockAndGetToken(arguments.number(0), MILLISECONDS);
            case "tryLockAndGetToken/0" -> lock.tryLockAndGetToken();
            case "tryLockAndGetToken/2" ->
                    lock.tryLockAndGetToken(arguments.number(0), arguments.number(1), MILLISECONDS);
            case "getToken/0" -> lock.getToken();
            default -> super.call(method, arguments);
        };
    }
}
