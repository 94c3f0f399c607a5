/* The threads of a process that strobe traces. Internal to this folder: hold.c keeps the list, pause.c stops them. */
#ifndef STROBE_PROCESS_LINUX_HOLD_H
#define STROBE_PROCESS_LINUX_HOLD_H

#include "process/linux/linux_process.h"

struct held_thread {
    pid_t tid;
    enum thread_run_state state_before;
    bool state_known; /* state_before is that from before the present pause */
    bool interrupted; /* was told to stop, and has not stopped since */
    bool stopped;
    bool group_stopped; /* by the program's own stop (SIGSTOP …), which is to last */
    bool gone;
    int signal; /* was about to be delivered when the thread stopped, and is delivered when it goes on */
};

/* Seizes the threads that are not on the list yet. They run on. */
enum status held_seize_new(struct process *process, struct error *error) MUST_USE;
/* Takes those that are gone off the list, and sorts it. */
void held_forget_gone(struct process *process);
/* Looks whether a thread has stopped (one call when it has), or else, when asked for, whether it has ended. */
void held_collect(const struct process *process, struct held_thread *thread, bool look_for_end);
/* Lets the kernel bury those that have ended, be it while they were stopped: another thread's exec waits for that. */
void held_bury_ended(const struct process *process);
/* Lets a stopped thread go on, still traced: with its signal, or stopped by the program itself as it was. */
void held_continue(const struct process *process, struct held_thread *thread);
/* Lets a stopped thread go for good; one that is not stopped stays on the list. */
void held_detach(const struct process *process, struct held_thread *thread);
/* The state letter of a thread, 'X' when there is none. */
char held_read_state(const struct process *process, pid_t tid);

int64_t held_now_ns(void);
/* Between looks at something that other threads do; the longer the later the turn. */
void held_wait_a_little(int turn);

#endif
