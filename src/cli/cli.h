/* What the commands share: messages, exit statuses, output. */
#ifndef STROBE_CLI_CLI_H
#define STROBE_CLI_CLI_H

#include "base/status.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

/* Exit statuses (strobe --help). */
enum {
    EXIT_OK = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_NO_PROCESS = 3,
    EXIT_PERMISSION = 4,
    EXIT_NOT_PYTHON = 5,
    EXIT_DAMAGED = 6
};

/* The exit status that a failure ends the program with. */
int cli_exit_status(enum status status);

/* One line on standard error: "strobe: ...". */
void cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Says that the process runs an interpreter of a later minor version than strobe's tables know. */
void cli_warn_of_version(pid_t pid);

/* Says the error and returns its exit status. */
int cli_fail(const struct error *error);

/* Keeps what is to be said at the end, and be the exit status, of one of several files. What was kept before is said
 * now.
 */
void cli_note_damage(struct error *damage, const struct error *error);

/* Says what is wrong with the command line, where to read more, and returns EXIT_USAGE. */
int cli_usage_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What getopt_long stumbled over: the value that an option was given, or the option that it refused. */
const char *cli_wrong_word(char *const *argv);

/* Parses a process id. */
bool cli_parse_pid(const char *text, pid_t *pid);
/* Parses a whole number from least to most. */
bool cli_parse_number(const char *text, long least, long most, long *number);

/* Whether colours are wanted on this stream: a terminal, and NO_COLOR is unset or empty. */
bool cli_wants_colour(FILE *stream);

/* Gives standard output a large buffer, whatever it is; for commands that write much and end. Before any output. */
void cli_buffer_output(void);

/* Ends output to standard output: a write that failed (a full disk) must not pass for success. */
int cli_finish_output(void);

/* Makes failures of writing errors like any other. To be called by a command that starts a program after that: what is
 * ignored, it would inherit. */
void cli_ignore_write_signals(void);

/* For commands that stop a process: what would stop strobe at the terminal does nothing then. */
void cli_ignore_stop_signals(void);

/* The commands. Each gets its own arguments, argv[0] being its name, and returns the exit status. */
int command_attach(int argc, char **argv);
int command_diff(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_dump(int argc, char **argv);
int command_merge(int argc, char **argv);
int command_report(int argc, char **argv);
int command_run(int argc, char **argv);
int command_start(int argc, char **argv);
int command_stop(int argc, char **argv);

#endif
