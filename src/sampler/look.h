/* One look at a whole process: every thread of every interpreter, with its stack. What `strobe dump` shows. */
#ifndef STROBE_SAMPLER_LOOK_H
#define STROBE_SAMPLER_LOOK_H

#include "base/arena.h"
#include "cpython/linetable.h"
#include "process/process.h"

struct look_options {
    bool blocking;       /* stop the threads for the look */
    bool with_locals;    /* fill look_frame.locals */
    size_t locals_chars; /* the most characters of one value */
    bool with_tasks;     /* fill look.tasks */
};

struct look_local {
    const char *name;
    const char *type;
    const char *value;
    bool argument;
};

struct look_frame {
    enum status status; /* when not STATUS_OK the frame could not be read and only this and the address are set */
    uint64_t address;   /* of the frame in the target, to know it again during this look */
    const char *function;
    const char *qualname; /* NULL before 3.11 */
    const char *file;
    struct source_position position; /* -1 where the interpreter has none */
    bool collecting;                 /* a garbage collection runs in this frame (known on 3.15+) */
    const struct look_local *locals; /* NULL unless asked for */
    size_t local_count;
    enum status locals_status;
};

enum gil_state { GIL_NONE, GIL_WAITING, GIL_HELD };

struct look_thread {
    bool has_python;    /* known to CPython: thread_id, interpreter and gil mean something */
    uint64_t thread_id; /* threading.get_ident() */
    uint64_t native_id; /* threading.get_native_id(): as the process itself counts; 0 when unknown */
    const char *name;   /* as the program named it, else the kernel's name; NULL when there is none */
    enum thread_run_state state;
    enum gil_state gil;
    int64_t interpreter;
    bool collecting;           /* it runs a garbage collection */
    bool consistent;           /* false: the stack changed at every attempt to read it */
    bool cut;                  /* the stack is deeper than strobe follows */
    struct look_frame *frames; /* innermost first */
    size_t frame_count;
};

struct look_interpreter {
    int64_t id;
    bool gil_enabled;
    bool collecting;
};

enum look_task_state {
    TASK_CREATED, /* not begun */
    TASK_AWAITING,
    TASK_RUNNING,
    TASK_DONE, /* its coroutine has ended; it is about to leave the list */
};

/* A task of asyncio. */
struct look_task {
    uint64_t address;   /* id(task) */
    const char *name;   /* NULL when it could not be read */
    bool has_thread;    /* false: the thread that it belongs to has ended, or is not known */
    uint64_t thread_id; /* threading.get_ident() of the thread whose event loop it belongs to */
    int64_t interpreter;
    enum look_task_state state;
    bool consistent; /* false: it changed at every attempt to read it, or ended meanwhile */
    bool cut;        /* it awaits deeper than strobe follows */
    /* Innermost first: of a running task, what its thread runs on its behalf; else the coroutines that await each
     * other. The outermost is the task's own coroutine. */
    const struct look_frame *frames;
    size_t frame_count;
    /* The tasks that await this one, themselves or through futures: their places in look.tasks, ascending. */
    const size_t *awaited_by;
    size_t awaited_by_count;
};

/* Everything in it lives until look_free. */
struct look {
    pid_t pid;
    uint32_t version; /* PY_VERSION_HEX, 0 when the target was too young to say */
    bool free_threaded;
    bool newer_than_known;
    char **command; /* owned by the process */
    struct look_interpreter *interpreters;
    size_t interpreter_count;
    struct look_thread *threads; /* the main thread first, then in the order of their birth */
    size_t thread_count;
    size_t thread_capacity;
    bool threads_complete; /* false: a list of threads or interpreters changed at every attempt to read it */
    /* In the order of their threads, then oldest first; when they were asked for. */
    struct look_task *tasks;
    size_t task_count;
    bool has_tasks;           /* false: not asked for, or tasks_error says why they could not be told */
    bool tasks_complete;      /* false: a list changed at every attempt to read it, or is longer than strobe follows */
    struct error tasks_error; /* for the user; its status is STATUS_OK when there is nothing to say */
    bool exhausted;           /* it cost more than a look may: threads are missing, or parts of them */
    struct arena arena;
    struct arena code_arena; /* the names and files of the frames */
};

/* Looks at an open process. The error says what to do. look_free in any case. */
enum status look_take(struct process *process, const struct look_options *options, struct look *look,
                      struct error *error) MUST_USE;
void look_free(struct look *look);

/* One more thread, zeroed, at the end. Only for the look's own parts. */
enum status look_add_thread(struct look *look, struct look_thread **thread) MUST_USE;

#endif
