/* The CPython of this process as the agent needs it: where it is, how it lays things out, and how a thread asks it for
 * its own state. */
#ifndef STROBE_AGENT_PYTHON_H
#define STROBE_AGENT_PYTHON_H

#include "cpython/layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum agent_python_presence {
    AGENT_PYTHON_NONE,    /* no CPython is loaded, or none that exports its symbols */
    AGENT_PYTHON_UNKNOWN, /* there is one, but none that strobe can look into */
    AGENT_PYTHON_FOUND,
};

/* Filled once and not changed afterwards, so that signal handlers may read it. */
struct agent_python {
    struct layout layout;
    void *library;         /* what has its symbols, as dlsym takes it */
    uint32_t version;      /* PY_VERSION_HEX */
    uint64_t runtime;      /* _PyRuntime */
    uint64_t eval;         /* _PyEval_EvalFrameDefault; 0: not known */
    uint64_t eval_bytes;   /* of its main part; 0: not known */
    uint64_t code_type;    /* PyCode_Type */
    uint64_t unicode_type; /* PyUnicode_Type */
    uint64_t bytes_type;   /* PyBytes_Type */
    /* 3.12+: the state that this thread is attached with. Before: that of the GIL's holder, whoever that is. */
    void *(*current_state)(void);
    /* The state that this thread was given first, attached or not. */
    void *(*first_state)(void);
};

/* Looks for CPython where `library` says: among all that the program began with (RTLD_DEFAULT), or in a handle of
 * dlopen's, which then stays open. It need not have been initialised. `reason` receives a line for the user unless it
 * is found. Not signal-safe. */
enum agent_python_presence agent_python_find(struct agent_python *python, void *library, char *reason,
                                             size_t reason_bytes);
/* The address of one of its symbols; NULL: it has none of that name. */
void *agent_python_symbol(const struct agent_python *python, const char *name);

struct agent_thread_state {
    uint64_t address; /* of the PyThreadState; 0: the interpreter does not know this thread */
    bool attached;    /* it holds the GIL (free-threaded: is attached), so that its state and what that leads to live */
};

/* This thread's state. Async-signal-safe, but for a CPython that was loaded by dlopen: its first call in each thread
 * may allocate and so has to come from outside of signal handlers. */
struct agent_thread_state agent_python_own_state(const struct agent_python *python);

#endif
