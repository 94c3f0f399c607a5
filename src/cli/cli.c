#include "cli/cli.h"

#include "base/message.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OUTPUT_BYTES = 1 << 16, LINE_BYTES = 1 << 14 };

int cli_exit_status(enum status status) {
    switch (status) {
    case STATUS_OK:
        return EXIT_OK;
    case STATUS_USAGE:
        return EXIT_USAGE;
    case STATUS_NO_PROCESS:
        return EXIT_NO_PROCESS;
    case STATUS_PERMISSION:
        return EXIT_PERMISSION;
    case STATUS_NOT_PYTHON:
        return EXIT_NOT_PYTHON;
    case STATUS_DAMAGED:
        return EXIT_DAMAGED;
    default:
        return EXIT_FAILED;
    }
}

/* One line, whatever is in the names that it quotes, and in one piece. */
static void say(const char *format, va_list arguments) {
    char line[LINE_BYTES] = "";
    message_format(line, sizeof line, format, arguments);
    for (size_t i = 0; line[i] != '\0'; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    (void)fprintf(stderr, "strobe: %s\n", line);
}

void cli_say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
}

void cli_warn_of_version(pid_t pid) {
    cli_say("process %d runs a CPython newer than strobe knows; it is read by its own description", (int)pid);
}

int cli_fail(const struct error *error) {
    cli_say("%s", error->text[0] != '\0' ? error->text : status_name(error->status));
    return cli_exit_status(error->status);
}

void cli_note_damage(struct error *damage, const struct error *error) {
    if (damage->status != STATUS_OK)
        (void)cli_fail(damage);
    *damage = *error;
}

int cli_usage_error(const char *command, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    message_format(text, sizeof text, format, arguments);
    va_end(arguments);
    cli_say("%s (see 'strobe%s%s --help')", text, command[0] != '\0' ? " " : "", command);
    return EXIT_USAGE;
}

const char *cli_wrong_word(char *const *argv) {
    static char letter[] = "-?";
    if (optarg != NULL)
        return optarg;
    /* While more letters follow in the same word, getopt has not gone beyond it. Codes of long options are larger. */
    if (optopt <= 0 || optopt > CHAR_MAX)
        return argv[optind - 1];
    letter[1] = (char)optopt;
    return letter;
}

void cli_ignore_write_signals(void) {
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error like a full disk */
}

void cli_ignore_stop_signals(void) {
    (void)signal(SIGTSTP, SIG_IGN);
    (void)signal(SIGTTIN, SIG_IGN);
    (void)signal(SIGTTOU, SIG_IGN);
}

bool cli_parse_number(const char *text, long least, long most, long *number) {
    char *end = NULL;
    errno = 0;
    *number = strtol(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && *number >= least && *number <= most;
}

bool cli_parse_pid(const char *text, pid_t *pid) {
    long number = 0;
    if (!cli_parse_number(text, 1, INT_MAX, &number))
        return false;
    *pid = (pid_t)number;
    return true;
}

bool cli_wants_colour(FILE *stream) {
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    if (no_color != NULL && no_color[0] != '\0')
        return false;
    if (term != NULL && strcmp(term, "dumb") == 0)
        return false;
    return isatty(fileno(stream)) == 1;
}

void cli_buffer_output(void) {
    /* Only the pages that are filled ever take up memory. */
    static char room[OUTPUT_BYTES];
    (void)setvbuf(stdout, room, _IOFBF, sizeof room);
}

int cli_finish_output(void) {
    /* A reader that has seen enough (`| head`) is no failure of ours. */
    if (fflush(stdout) == 0 && !ferror(stdout))
        return EXIT_OK;
    if (errno == EPIPE)
        return EXIT_OK;
    cli_say("cannot write the output: %s", strerror(errno));
    return EXIT_FAILED;
}
