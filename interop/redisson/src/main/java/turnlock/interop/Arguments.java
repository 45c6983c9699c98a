package turnlock.interop;

import java.util.List;

/** The arguments of a request. */
record Arguments(List<String> words) {
    int count() {
        return words.size();
    }

    String text(int index) {
        if (index >= words.size()) {
            throw new IllegalArgumentException("word " + index + " is missing in " + words);
        }
        return words.get(index);
    }

    long number(int index) {
        return Long.parseLong(text(index));
    }

    int integer(int index) {
        return Integer.parseInt(text(index));
    }

    Arguments after(int count) {
        return new Arguments(words.subList(Math.min(count, words.size()), words.size()));
    }
}
