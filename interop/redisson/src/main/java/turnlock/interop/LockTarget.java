package turnlock.interop;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import org.redisson.api.RLock;

/** Any lock. All times are milliseconds; a lease of -1 is renewed by the watchdog. */
class LockTarget implements Target {
    private final RLock lock;

    LockTarget(RLock lock) {
        this.lock = lock;
    }

    @Override
    public Object call(String method, Arguments arguments) throws Exception {
        switch (method + "/" + arguments.count()) {
            case "lock/0" -> lock.lock();
            case "lock/1" -> lock.lock(arguments.number(0), MILLISECONDS);
            case "unlock/0" -> lock.unlock();
            default -> {
                return callWithResult(method, arguments);
            }
        }
        return NOTHING;
    }

    private Object callWithResult(String method, Arguments arguments) throws Exception {
        return switch (method + "/" + arguments.count()) {
            case "tryLock/0" -> lock.tryLock();
            case "tryLock/1" -> lock.tryLock(arguments.number(0), MILLISECONDS);
            case "tryLock/2" -> lock.tryLock(arguments.number(0), arguments.number(1), MILLISECONDS);
            case "tryLockAsync/2" -> lock.tryLockAsync(arguments.number(0), arguments.number(1), MILLISECONDS)
                    .toCompletableFuture()
                    .join();
            case "forceUnlock/0" -> lock.forceUnlock();
            case "isLocked/0" -> lock.isLocked();
            case "isHeldByMe/0" -> lock.isHeldByCurrentThread();
            case "holdCount/0" -> lock.getHoldCount();
            case "remainTime/0" -> lock.remainTimeToLive();
            default -> throw Target.unknown(method, arguments);
        };
    }
}
