package turnlock.bench;

import java.util.ArrayList;
import java.util.List;

/** Java threads, one a task. */
final class Tasks {
    /** Room for what a task does; a thousand of them are to fit. */
    private static final long STACK_BYTES = 256 * 1024;

    private final List<Thread> threads = new ArrayList<>();

    private Tasks() {}

    /** What a task does; what it throws is counted as an error, and ends the task. */
    interface Work {
        void run(int task) throws Exception;
    }

    static Tasks start(int count, Tally tally, Work work) {
        Tasks tasks = new Tasks();
        for (int task = 0; task < count; task++) {
            int number = task;
            Runnable body = () -> {
                try {
                    work.run(number);
                } catch (Exception error) {
                    tally.error(error.toString());
                }
            };
            Thread thread = new Thread(null, body, "task-" + task, STACK_BYTES);
            thread.setDaemon(true);
            tasks.threads.add(thread);
        }
        tasks.threads.forEach(Thread::start);
        return tasks;
    }

    void join() throws InterruptedException {
        for (Thread thread : threads) {
            thread.join();
        }
    }

    /** Waits so long at most; gives the number of tasks that are not done. */
    int join(long seconds) throws InterruptedException {
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        int late = 0;
        for (Thread thread : threads) {
            // A time of 0 would be one without end.
            thread.join(Math.max(1, (end - System.nanoTime()) / 1_000_000));
            late += thread.isAlive() ? 1 : 0;
        }
        return late;
    }
}
