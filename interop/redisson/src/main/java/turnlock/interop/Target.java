package turnlock.interop;

/** A Redisson object, whose methods are called by name. */
interface Target {
    /** The reply to a call without a result. */
    String NOTHING = "-";

    Object call(String method, Arguments arguments) throws Exception;

    /** The exception for a method that the object does not have, or not with so many arguments. */
    static RuntimeException unknown(String method, Arguments arguments) {
        return new UnsupportedOperationException(method + " with " + arguments.count() + " arguments");
    }
}
