#include "sampler/attach_runtime.h"

#include "sampler/locate.h"

/* Takes the first candidate in which an interpreter lives, else the first that fits. */
static enum status choose(struct process *process, struct memory *objects, const struct located *located,
                          struct runtime *runtime, struct error *error) {
    size_t young = SIZE_MAX;
    enum status status = STATUS_NOT_FOUND;
    for (size_t i = 0; i < located->count; i++) {
        status = runtime_open(runtime, process_memory(process), objects, &located->candidates[i], error);
        if (status == STATUS_OK && !runtime->empty)
            return STATUS_OK;
        if (status == STATUS_OK && young == SIZE_MAX)
            young = i;
    }
    if (young == SIZE_MAX)
        return status;
    return runtime_open(runtime, process_memory(process), objects, &located->candidates[young], error);
}

enum status attach_runtime(struct process *process, struct memory *objects, struct runtime *runtime,
                           struct error *error) {
    struct located located;
    struct error ignored = {0};
    struct runtime other;
    TRY(locate_runtime(process, &located, error));
    enum status status = choose(process, objects, &located, runtime, error);
    if (status == STATUS_OK && !runtime->empty)
        return STATUS_OK;
    /* The runtime in use may be in an object that no one would look for Python in. */
    if (locate_runtime_everywhere(process, &located, &ignored) == STATUS_OK &&
        choose(process, objects, &located, &other, &ignored) == STATUS_OK && !other.empty) {
        *runtime = other;
        return STATUS_OK;
    }
    return status;
}
