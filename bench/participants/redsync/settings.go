package main

import (
	"fmt"
	"strconv"
	"strings"
)

// settings are the arguments key=value. Unknown keys are ignored.
type settings map[string]string

func newSettings(arguments []string) settings {
	values := settings{}
	for _, argument := range arguments {
		if key, value, ok := strings.Cut(argument, "="); ok {
			values[key] = value
		}
	}
	return values
}

func (s settings) text(key, defaultValue string) string {
	if value, ok := s[key]; ok {
		return value
	}
	return defaultValue
}

func (s settings) number(key string, defaultValue int64) int64 {
	text, ok := s[key]
	if !ok {
		return defaultValue
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		fail(fmt.Errorf("%s is not an integer: %w", key, err))
	}
	return value
}
