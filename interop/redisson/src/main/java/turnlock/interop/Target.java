package turnlock.interop;

/** An object of Redisson, whose methods are called by name. */
interface Target {
    /** What a call replies that gives nothing back. */
    String NOTHING = "-";

    Object call(String method, Arguments arguments) throws Exception;

    /** The answer to a method that the object does not have, or not with so many arguments. */
    static RuntimeException unknown(String method, Arguments arguments) {
        return new UnsupportedOperationException(method + " with " + arguments.count() + " arguments");
    }
}
