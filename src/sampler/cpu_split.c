#include "sampler/cpu_split.h"

#include "cpython/layout.h"

#include <stdlib.h>
#include <string.h>

struct cpu_split {
    struct mappings mappings;
    const struct mapping *interpreter; /* where the evaluation loop lies; NULL: not known */
};

enum status cpu_split_new(struct process *process, const struct layout *layout, remote_addr eval_address,
                          struct cpu_split **result) {
    struct error ignored = {0};
    (void)layout;
    struct cpu_split *split = calloc(1, sizeof *split);
    if (split == NULL)
        return STATUS_FAILED;
    enum status status = process_read_mappings(process, &split->mappings, &ignored);
    if (status != STATUS_OK) {
        free(split);
        return status;
    }
    split->interpreter = mappings_find(&split->mappings, eval_address);
    *result = split;
    return STATUS_OK;
}

void cpu_split_free(struct cpu_split *split) {
    if (split == NULL)
        return;
    mappings_release(&split->mappings);
    free(split);
}

void cpu_split_take(struct cpu_split *split, const struct wire_sample *before, const struct wire_sample *sample,
                    const uint64_t *words, bool in_python, struct sample_cpu *cpu) {
    (void)words;
    uint64_t spent_ns = sample->cpu_ns - (before != NULL ? before->cpu_ns : 0);
    *cpu = (struct sample_cpu){0};
    if (before != NULL && sample->system_us - before->system_us > sample->user_us - before->user_us) {
        cpu->kernel_ns = spent_ns;
        return;
    }
    const struct mapping *at = mappings_find(&split->mappings, sample->program_counter);
    bool inside = at != NULL && split->interpreter != NULL && at->inode == split->interpreter->inode;
    if (in_python && (inside || split->interpreter == NULL || at == NULL)) {
        cpu->python_ns = spent_ns;
        return;
    }
    cpu->native_ns = spent_ns;
    cpu->library = at != NULL && at->path[0] == '/' ? at->path : NULL;
}
