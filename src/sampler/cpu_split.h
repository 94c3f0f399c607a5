/* What a thread's CPU time was spent on, told from what the agent saw when its clock struck. */
#ifndef STROBE_SAMPLER_CPU_SPLIT_H
#define STROBE_SAMPLER_CPU_SPLIT_H

#include "process/process.h"
#include "sampler/code_files.h"
#include "sampler/sample.h"
#include "wire/records.h"

/* What is known of one process's machine code: which files are mapped where, where the interpreter's evaluation loop
 * is.
 */
struct cpu_split;

/* `process`, `layout` and `files` are borrowed; the process may end meanwhile. eval_address: of
 * _PyEval_EvalFrameDefault, 0: not known. */
enum status cpu_split_new(struct process *process, const struct layout *layout, remote_addr eval_address,
                          struct code_files *files, struct cpu_split **split) MUST_USE;
void cpu_split_free(struct cpu_split *split);

/* Divides weight_ns, the CPU time between two samples of one thread; `before` is NULL for its first. `words` are the
 * sample->stack_words words of the C stack; `in_python`: there is a Python frame. Fills cpu, whose parts add up to
 * weight_ns; its texts live until the next call. */
void cpu_split_take(struct cpu_split *split, const struct wire_sample *before, const struct wire_sample *sample,
                    const uint64_t *words, bool in_python, uint64_t weight_ns, struct sample_cpu *cpu);

#endif
