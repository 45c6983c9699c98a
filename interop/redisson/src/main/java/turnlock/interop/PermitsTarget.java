package turnlock.interop;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.List;
import org.redisson.api.RPermitExpirableSemaphore;

/** A semaphore whose permits have ids and may have leases. Several ids are separated by commas. */
final class PermitsTarget implements Target {
    private final RPermitExpirableSemaphore permits;

    PermitsTarget(RPermitExpirableSemaphore permits) {
        this.permits = permits;
    }

    @Override
    public Object call(String method, Arguments arguments) throws Exception {
        switch (method + "/" + arguments.count()) {
            case "release/1" -> permits.release(arguments.text(0));
            case "releaseSome/1" -> permits.release(List.of(arguments.text(0).split(",")));
            case "addPermits/1" -> permits.addPermits(arguments.integer(0));
            case "setPermits/1" -> permits.setPermits(arguments.integer(0));
            default -> {
                return callWithResult(method, arguments);
            }
        }
        return NOTHING;
    }

    private Object callWithResult(String method, Arguments arguments) throws Exception {
        return switch (method + "/" + arguments.count()) {
            case "trySetPermits/1" -> permits.trySetPermits(arguments.integer(0));
            case "acquire/0" -> permits.acquire();
            case "acquire/1" -> permits.acquire(arguments.number(0), MILLISECONDS);
            case "acquireSome/2" ->
                    String.join(",", permits.acquire(arguments.integer(0), arguments.number(1), MILLISECONDS));
            case "tryAcquire/0" -> permits.tryAcquire();
            case "tryAcquire/2" -> permits.tryAcquire(arguments.number(0), arguments.number(1), MILLISECONDS);
            case "tryRelease/1" -> permits.tryRelease(arguments.text(0));
            case "available/0" -> permits.availablePermits();
            case "acquired/0" -> permits.acquiredPermits();
            case "updateLease/2" -> permits.updateLeaseTime(arguments.text(0), arguments.number(1), MILLISECONDS);
            case "leaseTime/1" -> permits.getLeaseTime(arguments.text(0));
            case "delete/0" -> permits.delete();
            default -> throw Target.unknown(method, arguments);
        };
    }
}
