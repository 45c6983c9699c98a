package turnlock.bench;

/** What a herd waits for: a lock, a permit or a latch, as one task uses it. */
interface Gate {
    void acquire() throws Exception;

    void release() throws Exception;
}
