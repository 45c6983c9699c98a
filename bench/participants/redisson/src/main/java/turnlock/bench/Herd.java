package turnlock.bench;

import java.util.concurrent.atomic.AtomicLong;
import org.redisson.api.RLock;

/** Many wait for a lock that is held, and get it one after the other once it is given back. */
record Herd(Locks locks, Settings settings, Dialogue dialogue) {
    private static final long NOT_YET = Long.MIN_VALUE;

    void run() throws Exception {
        Tally tally = new Tally(settings.tasks());
        AtomicLong givenBack = new AtomicLong(NOT_YET);
        locks.warmUp();
        dialogue.readyAndGo();
        RLock held = locks.one();
        held.lock();
        Tasks waiters = Tasks.start(settings.tasks(), tally, task -> {
            RLock lock = locks.one();
            lock.lock();
            long granted = System.nanoTime();
            long since = givenBack.get();
            if (since == NOT_YET) {
                tally.error("granted while another held it");
            } else {
                tally.turn(task, granted - since);
            }
            lock.unlock();
        });
        Thread.sleep(settings.holdMillis());
        long start = System.nanoTime();
        givenBack.set(start);
        held.unlock();
        tally.late(waiters.join(settings.seconds()));
        dialogue.say(tally.report(start));
    }
}
