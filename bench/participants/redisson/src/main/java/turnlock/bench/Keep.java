package turnlock.bench;

/** Holds many locks, which the watchdog renews. */
record Keep(Locks locks, Settings settings, Dialogue dialogue) {
    /** So many take them, to be ready sooner. The watchdog renews them all alike, also when their threads have ended. */
    private static final int TAKERS = 16;

    void run() throws Exception {
        Tally tally = new Tally(TAKERS);
        Tasks.start(TAKERS, tally, taker -> {
                    for (int number = taker; number < settings.locks(); number += TAKERS) {
                        locks.numbered(number).lock();
                    }
                })
                .join();
        dialogue.readyAndGo();
        long start = System.nanoTime();
        Thread.sleep(settings.seconds() * 1_000);
        dialogue.say(tally.report(start));
    }
}
