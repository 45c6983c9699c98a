package turnlock.interop;

import java.util.List;

/** One line of stdin: {@code <id> <thread> <object> [words...]}. */
record Request(String id, String thread, String object, Arguments words) {
    static Request parse(String line) {
        List<String> words = List.of(line.split(" "));
        return new Request(words.get(0), words.get(1), words.get(2), new Arguments(words.subList(3, words.size())));
    }
}
