#include "agent/python.h"

#include <dlfcn.h>
#include <stddef.h>

bool agent_python_find(struct agent_python *python) {
    void *runtime = dlsym(RTLD_DEFAULT, "_PyRuntime");
    const uint32_t *version = dlsym(RTLD_DEFAULT, "Py_Version");
    *python = (struct agent_python){
        .runtime = (uintptr_t)runtime,
        .eval = (uintptr_t)dlsym(RTLD_DEFAULT, "_PyEval_EvalFrameDefault"),
        .version = version != NULL ? *version : 0,
    };
    dlerror(); /* the program must not find what failed here */
    return runtime != NULL;
}
