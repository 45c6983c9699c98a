package main

import (
	"fmt"
	"strconv"
	"strings"
)

// settings are the words key=value. Those that nobody asks for are ignored.
type settings map[string]string

func newSettings(words []string) settings {
	values := settings{}
	for _, word := range words {
		if key, value, ok := strings.Cut(word, "="); ok {
			values[key] = value
		}
	}
	return values
}

func (s settings) text(key, missing string) string {
	if value, ok := s[key]; ok {
		return value
	}
	return missing
}

func (s settings) number(key string, missing int64) int64 {
	text, ok := s[key]
	if !ok {
		return missing
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		fail(fmt.Errorf("%s is no whole number: %w", key, err))
	}
	return value
}
