/* The processes that are sampled together: one or more roots and, if asked for, what descends from them. */
#ifndef STROBE_SAMPLER_FAMILY_H
#define STROBE_SAMPLER_FAMILY_H

#include "sampler/target.h"

struct family;

/* `options` and `sink` are borrowed. */
enum status family_new(const struct target_options *options, struct sample_sink *sink, struct family **family,
                       struct error *error) MUST_USE;
/* Tells the sink that all of them have ended, and frees it. */
enum status family_free(struct family *family) MUST_USE;

/* Adds a Python process, and takes it over, also when that fails. */
enum status family_add(struct family *family, struct process *process, struct error *error) MUST_USE;
/* Adds a process that may become Python as long as it lives. */
enum status family_expect(struct family *family, pid_t pid, struct error *error) MUST_USE;
/* From here on, descendants of `root` are added when they are born, as soon as they are Python. */
enum status family_follow(struct family *family, pid_t root, struct error *error) MUST_USE;

/* A process has ended like this, as its parent knows. */
enum status family_note_end(struct family *family, pid_t pid, int wait_status) MUST_USE;

/* For poll(2): readable when family_attend has something to do; -1 when that cannot be. */
int family_fd(const struct family *family);
/* When family_attend is to be called at the latest (CLOCK_MONOTONIC); UINT64_MAX: only family_fd counts. */
uint64_t family_due_ns(const struct family *family);
/* Takes in births, execs and ends, and looks whether those that were no Python yet are by now. Cheap when nothing
 * happened. */
enum status family_attend(struct family *family, uint64_t now_ns) MUST_USE;
/* When blocking, to be called after each SIGCHLD and every few milliseconds (process_serve). */
void family_serve(struct family *family);

/* Looks at each once. `missed` is how many deadlines were missed so far. STATUS_NO_PROCESS when there is none left. */
enum status family_look(struct family *family, uint64_t now_ns, uint64_t missed) MUST_USE;

/* How many were Python, ended ones included. */
uint32_t family_sampled_count(const struct family *family);
/* What kept strobe from looking at some of them; STATUS_OK: nothing. */
enum status family_obstacle(const struct family *family);

#endif
