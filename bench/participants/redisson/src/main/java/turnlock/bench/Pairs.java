package turnlock.bench;

import org.redisson.api.RLock;

/** Each task takes a lock of its own and gives it back, again and again. */
record Pairs(Locks locks, Settings settings, Dialogue dialogue) {
    void run() throws Exception {
        Tally tally = new Tally(settings.tasks());
        locks.warmUp();
        dialogue.readyAndGo();
        long start = System.nanoTime();
        Tasks.start(settings.tasks(), tally, task -> some(task, tally)).join();
        dialogue.say(tally.report(start));
    }

    private void some(int task, Tally tally) throws InterruptedException {
        RLock lock = locks.numbered(task);
        boolean timed = settings.tasks() == 1;
        long share = settings.turns() / settings.tasks() + (task < settings.turns() % settings.tasks() ? 1 : 0);
        for (long turn = 0; turn < share; turn++) {
            long asked = System.nanoTime();
            try {
                locks.pair(lock);
                if (timed) {
                    tally.turn(task, System.nanoTime() - asked);
                } else {
                    tally.turn(task);
                }
            } catch (RuntimeException error) {
                tally.error(error.toString());
            }
        }
    }
}
