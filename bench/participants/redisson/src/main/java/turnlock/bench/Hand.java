package turnlock.bench;

import org.redisson.api.RLock;

/** Takes the lock and gives it back when told to. On Linux, {@link System#nanoTime} is CLOCK_MONOTONIC. */
record Hand(Locks locks, Settings settings, Dialogue dialogue) {
    void run() throws Exception {
        locks.warmUp();
        RLock lock = locks.one();
        dialogue.say("ready");
        for (String order = dialogue.hear(); order != null; order = dialogue.hear()) {
            switch (order) {
                case "lock" -> {
                    lock.lock();
                    dialogue.say("ok");
                }
                case "unlock" -> {
                    long before = System.nanoTime();
                    lock.unlock();
                    dialogue.say(before);
                }
                case "wait" -> {
                    dialogue.say("waiting");
                    lock.lock();
                    long granted = System.nanoTime();
                    lock.unlock();
                    dialogue.say(granted);
                }
                default -> throw new IllegalArgumentException("there is no order " + order);
            }
        }
    }
}
