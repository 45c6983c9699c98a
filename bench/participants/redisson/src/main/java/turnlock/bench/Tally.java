package turnlock.bench;

import java.util.Arrays;
import java.util.stream.Stream;

/** The counts of all tasks. Each task has counts of its own, whose monitor is uncontended until the report. */
final class Tally {
    private final TaskTally[] tallies;
    private long errors;
    private String firstError = "";
    private long gaveUp;

    Tally(int tasks) {
        tallies = Stream.generate(TaskTally::new).limit(tasks).toArray(TaskTally[]::new);
    }

    /** Counts a grant without its time. */
    void turn(int task) {
        tallies[task].turn();
    }

    /** Counts a grant with its time. */
    void turn(int task, long nanos) {
        tallies[task].turn(nanos);
    }

    synchronized void error(String what) {
        if (errors == 0) {
            firstError = what;
        }
        errors += 1;
    }

    /** Records the tasks that did not finish in time. */
    synchronized void unfinished(long tasks) {
        gaveUp = tasks;
    }

    /** The report as one line of JSON. */
    synchronized String report(long start) {
        double seconds = (System.nanoTime() - start) / 1e9;
        long[] perTask = new long[tallies.length];
        long[][] nanos = new long[tallies.length][];
        for (int task = 0; task < tallies.length; task++) {
            synchronized (tallies[task]) {
                perTask[task] = tallies[task].turns;
                nanos[task] = tallies[task].nanos();
            }
        }
        return "{\"turns\":" + Arrays.stream(perTask).sum()
                + ",\"seconds\":" + seconds
                + ",\"errors\":" + errors
                + ",\"first_error\":" + Json.text(firstError)
                + ",\"gave_up\":" + gaveUp
                + ",\"per_task\":" + Arrays.toString(perTask)
                + ",\"nanos\":" + Arrays.toString(Arrays.stream(nanos).flatMapToLong(Arrays::stream).toArray())
                + ",\"direct\":[]}";
    }

    private static final class TaskTally {
        private long turns;
        private long[] nanos = {};
        private int count;

        synchronized void turn() {
            turns += 1;
        }

        synchronized void turn(long took) {
            turns += 1;
            if (count == nanos.length) {
                nanos = Arrays.copyOf(nanos, Math.max(16, 2 * count));
            }
            nanos[count] = took;
            count += 1;
        }

        long[] nanos() {
            return Arrays.copyOf(nanos, count);
        }
    }
}
