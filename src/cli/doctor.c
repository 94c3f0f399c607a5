#include "cli/doctor.h"

#include "cli/cli.h"

#include <stdarg.h>

static const struct {
    const char *word;
    const char *colour;
} marks[] = {
    [FINDING_WORKS] = {"ok  ", "\033[32m"},
    [FINDING_MISSING] = {"no  ", "\033[31m"},
    [FINDING_NOTE] = {"note", "\033[33m"},
};

void doctor_section(const char *format, ...) {
    static bool begun;
    bool colour = cli_wants_colour(stdout);
    va_list arguments;
    va_start(arguments, format);
    fputs(begun ? "\n" : "", stdout);
    fputs(colour ? "\033[1m" : "", stdout);
    begun = true;
    vprintf(format, arguments);
    fputs(colour ? "\033[0m\n" : "\n", stdout);
    va_end(arguments);
}

void doctor_find(enum finding finding, const char *format, ...) {
    bool colour = cli_wants_colour(stdout);
    va_list arguments;
    va_start(arguments, format);
    printf("  %s%s%s  ", colour ? marks[finding].colour : "", marks[finding].word, colour ? "\033[0m" : "");
    vprintf(format, arguments);
    fputc('\n', stdout);
    va_end(arguments);
}
