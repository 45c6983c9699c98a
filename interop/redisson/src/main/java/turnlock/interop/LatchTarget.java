package turnlock.interop;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import org.redisson.api.RCountDownLatch;

/** A count-down latch. */
final class LatchTarget implements Target {
    private final RCountDownLatch latch;

    LatchTarget(RCountDownLatch latch) {
        this.latch = latch;
    }

    @Override
    public Object call(String method, Arguments arguments) throws Exception {
        switch (method + "/" + arguments.count()) {
            case "countDown/0" -> latch.countDown();
            case "await/0" -> latch.await();
            default -> {
                return callWithResult(method, arguments);
            }
        }
        return NOTHING;
    }

    private Object callWithResult(String method, Arguments arguments) throws Exception {
        return switch (method + "/" + arguments.count()) {
            case "trySetCount/1" -> latch.trySetCount(arguments.number(0));
            case "getCount/0" -> latch.getCount();
            case "await/1" -> latch.await(arguments.number(0), MILLISECONDS);
            case "delete/0" -> latch.delete();
            default -> throw Target.unknown(method, arguments);
        };
    }
}
