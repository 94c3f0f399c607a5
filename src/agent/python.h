/* Is this process Python, and where is its runtime? */
#ifndef STROBE_AGENT_PYTHON_H
#define STROBE_AGENT_PYTHON_H

#include <stdbool.h>
#include <stdint.h>

struct agent_python {
    uintptr_t runtime; /* _PyRuntime */
    uintptr_t eval;    /* _PyEval_EvalFrameDefault; 0: not known */
    uint32_t version;  /* PY_VERSION_HEX; 0: not known yet */
    bool free_threaded;
};

bool agent_python_find(struct agent_python *python);

#endif
