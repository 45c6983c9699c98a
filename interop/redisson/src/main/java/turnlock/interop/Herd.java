package turnlock.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.redisson.api.RBucket;
import org.redisson.api.RScript;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/** Many threads that increment one counter by GET and SET: without mutual exclusion, increments are lost. */
final class Herd {
    /** A script runs on the master. A GET goes to a replica if there is one, and may return an old number. */
    private static final String READ = "return redis.call('GET', KEYS[1])";

    private final Gate gate;
    private final RBucket<String> counter;
    private final RScript script;

    Herd(RedissonClient client, Gate gate, String counter) {
        this.gate = gate;
        this.counter = client.getBucket(counter, StringCodec.INSTANCE);
        this.script = client.getScript(StringCodec.INSTANCE);
    }

    /** Returns the number of turns. */
    int run(int threads, int turns) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            List<Callable<Integer>> members = new ArrayList<>();
            for (int member = 0; member < threads; member++) {
                members.add(() -> take(turns));
            }
            int total = 0;
            for (Future<Integer> member : pool.invokeAll(members)) {
                total += member.get();
            }
            return total;
        } catch (ExecutionException failed) {
            throw failed.getCause() instanceof Exception cause ? cause : failed;
        } finally {
            pool.shutdownNow();
        }
    }

    private int take(int turns) throws InterruptedException {
        for (int turn = 0; turn < turns; turn++) {
            Runnable leave = gate.enter();
            try {
                String before = read();
                counter.set(String.valueOf(before == null ? 1 : Long.parseLong(before) + 1));
            } finally {
                leave.run();
            }
        }
        return turns;
    }

    private String read() {
        return script.eval(RScript.Mode.READ_WRITE, READ, RScript.ReturnType.VALUE, List.of(counter.getName()));
    }
}
