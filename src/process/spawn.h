/* Starting a command and standing between it and whoever sends signals to strobe. */
#ifndef STROBE_PROCESS_SPAWN_H
#define STROBE_PROCESS_SPAWN_H

#include "base/status.h"

#include <stdbool.h>
#include <sys/types.h>

struct spawn;

struct spawn_news {
    bool child_signal; /* SIGCHLD came: something happened to the command, another child, or a traced thread */
    bool interrupted;  /* SIGINT or SIGQUIT came, from the terminal or from elsewhere */
    bool ended;        /* the command has ended, with wait_status as from waitpid */
    int wait_status;
};

/* Makes the child process for a command, which is searched on PATH. It waits for spawn_start, so that it can be watched
 * from its first instruction on; when strobe ends before that, so does it. It has strobe's standard streams,
 * environment, process group, signal mask and dispositions, as if strobe were not there.
 *
 * From here to spawn_close, SIGCHLD and what a program may be sent by others (SIGTERM, SIGHUP, SIGUSR1, real-time
 * signals and the like; not SIGTSTP and SIGCONT, which stop strobe and let it go on) does nothing to strobe but make
 * spawn_fd readable. Call it before there are other threads. One at a time. */
enum status spawn_open(char *const *command, struct spawn **spawn, struct error *error) MUST_USE;
/* Lets the child become the command. STATUS_NOT_FOUND when there is no such command (a shell exits with 127 then),
 * STATUS_PERMISSION when it cannot be executed (126). */
enum status spawn_start(struct spawn *spawn, struct error *error) MUST_USE;
/* Whether spawn_start has been called and was successful. */
bool spawn_started(const struct spawn *spawn);
pid_t spawn_pid(const struct spawn *spawn);
/* For poll(2): readable when spawn_poll has something to do. */
int spawn_fd(const struct spawn *spawn);
/* Passes signals on and tells what happened; never blocks. What the terminal sends goes to its whole foreground process
 * group, the command included, and is not sent again; what another process sent to strobe is, and that the terminal has
 * gone when strobe alone was told. */
void spawn_poll(struct spawn *spawn, struct spawn_news *news);
/* Gives the signals back as they were. Leaves a command that still runs alone. */
void spawn_close(struct spawn *spawn);

/* What a shell makes of a wait status: the exit code, or 128 + the signal. */
int spawn_exit_code(int wait_status);

#endif
