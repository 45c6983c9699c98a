package turnlock.interop;

import java.time.Duration;
import org.redisson.api.RSemaphore;

/** A semaphore: a counter of free permits. */
final class SemaphoreTarget implements Target {
    private final RSemaphore semaphore;

    SemaphoreTarget(RSemaphore semaphore) {
        this.semaphore = semaphore;
    }

    @Override
    public Object call(String method, Arguments arguments) throws Exception {
        switch (method + "/" + arguments.count()) {
            case "acquire/1" -> semaphore.acquire(arguments.integer(0));
            case "release/1" -> semaphore.release(arguments.integer(0));
            case "addPermits/1" -> semaphore.addPermits(arguments.integer(0));
            default -> {
                return callWithResult(method, arguments);
            }
        }
        return NOTHING;
    }

    private Object callWithResult(String method, Arguments arguments) throws Exception {
        return switch (method + "/" + arguments.count()) {
            case "trySetPermits/1" -> semaphore.trySetPermits(arguments.integer(0));
            case "tryAcquire/1" -> semaphore.tryAcquire(arguments.integer(0));
            case "tryAcquire/2" ->
                    semaphore.tryAcquire(arguments.integer(0), Duration.ofMillis(arguments.number(1)));
            case "availablePermits/0" -> semaphore.availablePermits();
            case "drainPermits/0" -> semaphore.drainPermits();
            case "delete/0" -> semaphore.delete();
            default -> throw Target.unknown(method, arguments);
        };
    }
}
