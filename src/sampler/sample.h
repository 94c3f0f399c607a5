/* What a sampler hands on: samples of threads, in terms of code objects and instructions. Who takes them (a capture, a
 * live view) turns those into names. */
#ifndef STROBE_SAMPLER_SAMPLE_H
#define STROBE_SAMPLER_SAMPLE_H

#include "base/series.h"
#include "cpython/code.h"
#include "process/process.h"

enum sample_frame_kind {
    SAMPLE_FRAME_PYTHON,
    SAMPLE_FRAME_NATIVE,
    SAMPLE_FRAME_GC,
    SAMPLE_FRAME_UNREADABLE,
    SAMPLE_FRAME_CUT,           /* frames were left out here */
    SAMPLE_FRAME_NATIVE_THREAD, /* of allocations only: a thread without Python frames, whose memory the frames around
                                   it, another thread's, are charged with */
    SAMPLE_FRAME_STARTUP,       /* of allocations only: before the first Python frame of the process */
    SAMPLE_FRAME_SHUTDOWN,      /* and behind its last */
    SAMPLE_FRAME_LOST,          /* what the allocations stand for whose records found no room */
};

/* `code` is NULL but for SAMPLE_FRAME_PYTHON. */
struct sample_frame {
    const struct code *code;
    int32_t instruction_bytes; /* into the bytecode; -1: not begun */
    enum sample_frame_kind kind;
};

enum sample_gil { SAMPLE_GIL_NONE, SAMPLE_GIL_HELD, SAMPLE_GIL_WAITING };

/* Whether the CPU time of a process seen from outside is told from inside. */
enum sample_company {
    SAMPLE_COMPANY_UNKNOWN,
    SAMPLE_COMPANY_AGENT,
    SAMPLE_COMPANY_NONE, /* there is no agent in it, or none any more */
};

/* A process that is sampled. `receiver`, `company`, `asked` and `inside` belong to who receives the samples. */
struct sampled_process {
    struct process *process; /* NULL: it is gone */
    uint32_t number;         /* from 0, in the order of their discovery */
    pid_t pid;
    pid_t parent_pid; /* 0: not known */
    uint32_t version; /* PY_VERSION_HEX */
    char **command;
    const char *began_in; /* its working directory when it began; NULL: not known */
    const char *library;  /* the folder of its standard library; NULL: not known (yet) */
    uint64_t start_ns;
    uint64_t start_unix_ns;
    uint64_t end_ns; /* set before it is told to have ended; 0: at that moment */
    void *receiver;
    const struct sampled_process *inside;   /* the same process as its agent sees it, which says whether it is paused */
    const struct sample_counters *counters; /* so far, as of the sink's last idle(); NULL: not told before the end */
    enum sample_company company;
    bool asked;      /* since company is unknown, whether the agent's library is there */
    int wait_status; /* as wait(2) gives it, when it has ended and that is known */
    bool has_status;
    bool free_threaded;
    bool paused; /* what it does is not to be told now: strobe stop, or its own word */
};

/* Running totals since sampling began. */
struct sample_counters {
    uint64_t taken;
    uint64_t missed;       /* deadlines that strobe could not keep */
    uint64_t inconsistent; /* looks at a thread that were dropped: its stack changed at each attempt */
    uint64_t errors;       /* looks at a thread that failed otherwise */
    uint64_t unwatched;    /* threads for which strobe might not open the files that tell when they run */
};

/* How well CPU time was looked at. */
struct sample_looks {
    uint64_t cpu_ns;     /* all of it; */
    uint64_t longest_ns; /* the most that one look stands for */
};

struct sampled_thread {
    struct sampled_process *process;
    uint64_t native_id;
    uint64_t thread_id;
    int64_t interpreter;
    const char *name; /* NULL: none */
    uint64_t cpu_ns;  /* used since sampling began */
    void *receiver;
};

/* What a sample's weight is. */
enum sample_clock {
    SAMPLE_CLOCK_WALL,    /* all time, or that in which the thread ran or had the GIL, as the mode says */
    SAMPLE_CLOCK_CPU,     /* the thread's own CPU clock: the agent's samples */
    SAMPLE_CLOCK_WAIT,    /* wall time without CPU time */
    SAMPLE_CLOCK_CPU_SUM, /* the thread's own CPU clock, seen from outside: the parts are not known */
};

/* The parts of a CPU clock's weight. */
struct sample_cpu {
    uint64_t python_ns;
    uint64_t native_ns;
    uint64_t kernel_ns;
    const char *function; /* of the native code, NULL: not known; borrowed for the call */
    const char *library;  /* path of the file it is in, NULL: not known; borrowed for the call */
};

struct sample {
    struct sampled_thread *thread;
    uint64_t time_ns;                  /* CLOCK_MONOTONIC */
    uint64_t weight_ns;                /* the time it stands for */
    const struct sample_frame *frames; /* outermost first */
    size_t count;
    /* So many of them, from the outermost on, are those that this thread's samples had there before; if it was seen
     * `passing`, the next sample's are counted as if it had not been there. */
    size_t unchanged;
    struct sample_cpu cpu; /* when the clock is SAMPLE_CLOCK_CPU; they sum up to weight_ns */
    enum sample_clock clock;
    enum thread_run_state state;
    enum sample_gil gil;
    bool collecting;
    bool passing;
};

/* A call path: its caller's and one frame more. */
struct sample_path {
    uint32_t caller; /* has a lower number */
    uint32_t frame;
};

/* All call paths that a process allocated from so far. They only grow, until the process ends. */
struct sample_sites {
    uint32_t serial; /* of no other process, also not of the same before an exec */
    const struct sample_frame *frames;
    const struct sample_path *paths; /* [0] is the empty one */
    size_t path_count;
};

/* What a thread allocated and copied since it was told last. Variances are of the sampling: the square of a standard
 * deviation, in KiB². */
struct sample_allocation {
    uint32_t path;
    uint64_t alloc_bytes;
    uint64_t alloc_count;
    uint64_t alloc_variance;
    uint64_t python_bytes; /* of alloc_bytes */
    uint64_t copy_bytes;
    uint64_t copy_variance;
};

/* What the memory that came from a call path is. */
struct sample_held {
    uint64_t live_bytes;
    uint64_t live_count;
    uint64_t live_variance;
    uint64_t peak_bytes; /* what was live when the process held most */
    uint64_t peak_variance;
    uint64_t temporary_bytes; /* allocated in all and freed before the path's next sampled allocation */
};

/* How that has changed. */
struct sample_change {
    uint32_t path;
    struct sample_held before, now;
};

/* Where the memory of a process stands. */
struct sample_memory {
    struct sampled_process *process;
    uint64_t time_ns;
    const struct sample_sites *sites;
    const struct sample_change *changes; /* since it was told last, of the paths where anything has changed */
    size_t change_count;
    const struct series_point *footprint; /* of the process, since it was told last, by time */
    size_t footprint_count;
    uint64_t footprint_bytes, peak_bytes, peak_ns; /* as the process itself counts */
    uint64_t inherited_bytes;                      /* of the footprint, what was there when it was forked */
    uint64_t stride_bytes;                         /* the mean distance of samples */
    uint64_t lost_records;
    uint64_t resident_bytes; /* in RAM and no file's: the most that was seen, now and then; 0: it was not */
};

/* Receives what a sampler sees. A result other than STATUS_OK ends the sampling. */
struct sample_sink {
    enum status (*process_started)(struct sample_sink *sink, struct sampled_process *process);
    enum status (*process_ended)(struct sample_sink *sink, struct sampled_process *process,
                                 const struct sample_counters *counters);
    enum status (*thread_started)(struct sample_sink *sink, struct sampled_thread *thread);
    enum status (*thread_renamed)(struct sample_sink *sink, struct sampled_thread *thread);
    enum status (*thread_ended)(struct sample_sink *sink, struct sampled_thread *thread);
    enum status (*sample)(struct sample_sink *sink, const struct sample *sample);
    /* Between looks, at least every 100 ms. */
    enum status (*idle)(struct sample_sink *sink, uint64_t now_ns);
    /* All struct code of this process are about to go: forget what hangs on them. */
    enum status (*code_forgotten)(struct sample_sink *sink, struct sampled_process *process);
    /* Only from inside, and only where memory is looked at; NULL: not wanted. */
    enum status (*allocations)(struct sample_sink *sink, struct sampled_thread *thread,
                               const struct sample_sites *sites, const struct sample_allocation *allocations,
                               size_t count);
    enum status (*memory)(struct sample_sink *sink, const struct sample_memory *memory);
    /* More is known of it than when it was told: where its library is. NULL: not wanted. */
    enum status (*process_described)(struct sample_sink *sink, struct sampled_process *process);
    /* How a process ended that is or was sampled, or that is none of them. NULL: not wanted. */
    enum status (*process_exited)(struct sample_sink *sink, pid_t pid, int wait_status);
};

#endif
