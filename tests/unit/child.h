/* Child processes as targets. A child runs a function and ends with it; it says through a pipe when it is ready. */
#ifndef STROBE_TESTS_CHILD_H
#define STROBE_TESTS_CHILD_H

#include <sys/types.h>

struct process;

/* What a child's function calls when the state that the test wants to see is reached. */
void child_ready(void);

/* Forks, and returns when the child has called child_ready. The child is killed when this program ends. */
pid_t child_start(void (*function)(void *), void *argument);

/* Runs a command and waits until it has written something to its standard output, where nobody reads on. */
pid_t child_run_until_output(const char *const *command);

/* Copies a file, executable like the first; the second may exist. */
void child_copy_file(const char *from, const char *to);

/* Kills and buries it. */
void child_end(pid_t pid);

/* Sleeps for ever. A child function to use as it is. */
void child_idle(void *unused);

/* The state letter in /proc/PID/task/TID/stat. */
char child_thread_state(pid_t pid, pid_t tid);

/* Opens a process to look at, or fails the test. Caller owns it. */
struct process *child_open(pid_t pid);

/* Waits until the state letter of a thread is one of `states`; looks every millisecond, fails the test after 10 s. */
void child_await_state(pid_t pid, pid_t tid, const char *states);

#endif
