/* What the files of this folder share. */
#ifndef STROBE_PROCESS_LINUX_LINUX_PROCESS_H
#define STROBE_PROCESS_LINUX_LINUX_PROCESS_H

#include "process/process.h"

/* The memory of a live process. */
struct live_memory {
    struct memory memory; /* must be first */
    pid_t pid;
    int mem_fd;          /* /proc/PID/mem, bound to one program, not to a process id; -1 when it cannot be opened */
    unsigned exec_count; /* how often the descriptor was found to be of a program before an exec */
    bool no_vector;      /* process_vm_readv is not to be had (seccomp, old kernel) */
    int dir_fd;          /* borrowed, as is the next */
    int stat_fd;         /* tells an unmapped address from a process that has ended */
};

struct held_thread;

struct process {
    pid_t pid;
    pid_t own_pid;
    pid_t entry_tid; /* the thread whose /proc directory is used: the leader, or another when the leader has ended */
    bool nested;     /* lives in a PID namespace below strobe's */
    int dir_fd;      /* /proc/ENTRY_TID: a reused id is not found through it */
    int stat_fd;
    struct live_memory memory;
    char *command_text;
    char **command;
    bool hold;                /* stays traced between pauses */
    bool paused;              /* between process_pause and process_resume */
    struct held_thread *held; /* sorted by tid */
    size_t held_count;
    size_t held_capacity;
};

/* memory_live.c */
enum status live_memory_open(struct live_memory *memory, const struct process *process) MUST_USE;
void live_memory_close(struct live_memory *memory);

/* access.c: sets the error for a process that the kernel does not let strobe read, naming what to change. */
enum status process_explain_denial(const struct process *process, struct error *error);
/* Whether strobe has CAP_SYS_PTRACE. */
bool access_may_trace(void);
/* Yama's setting; MACHINE_UNKNOWN where there is none. */
int access_ptrace_scope(void);

/* hold.c: the state that a thread had before process_pause stopped it. False when that is not known. */
bool process_state_before_pause(const struct process *process, pid_t tid, enum thread_run_state *state);

#endif
