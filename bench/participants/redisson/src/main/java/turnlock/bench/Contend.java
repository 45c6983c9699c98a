package turnlock.bench;

import java.io.IOException;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.api.RLock;

/** All tasks want one lock. Who waits when the time is over still has its turn. */
record Contend(Locks locks, Settings settings, Dialogue dialogue) {
    /** How long those who wait when the time is over may take for their turn. */
    private static final long GRACE_SECONDS = 60;

    void run() throws Exception {
        Tally tally = new Tally(settings.tasks());
        try (Counter counter = new Counter(Path.of(settings.counter()))) {
            AtomicLong left = new AtomicLong(settings.turns() == 0 ? Long.MAX_VALUE : settings.turns());
            locks.warmUp();
            dialogue.readyAndGo();
            long start = System.nanoTime();
            long limit = settings.seconds() * 1_000_000_000L;
            Tasks tasks = Tasks.start(settings.tasks(), tally, task -> {
                RLock lock = locks.one();
                while (System.nanoTime() - start < limit && left.decrementAndGet() >= 0) {
                    turn(task, lock, counter, tally);
                }
            });
            tally.late(tasks.join(settings.seconds() + GRACE_SECONDS));
            dialogue.say(tally.report(start));
        }
    }

    private static void turn(int task, RLock lock, Counter counter, Tally tally) throws IOException {
        long asked = System.nanoTime();
        try {
            lock.lock();
            long waited = System.nanoTime() - asked;
            counter.up();
            tally.turn(task, waited);
            lock.unlock();
        } catch (RuntimeException error) {
            tally.error(error.toString());
        }
    }
}
