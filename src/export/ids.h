/* The numbers of processes and threads, for formats that tell them apart by these: the system's own, unless one came
 * up before. Captures of several machines or containers may be in one profile, an exec makes another program of a
 * process, and a thread may get the number of one that ended. */
#ifndef STROBE_EXPORT_IDS_H
#define STROBE_EXPORT_IDS_H

#include "profile/profile.h"

struct ids {
    int64_t *pids;  /* by process */
    uint64_t *tids; /* by thread; a main thread's is its process's */
};

/* Only want of memory makes it fail. */
enum status ids_init(struct ids *ids, const struct profile *profile) MUST_USE;
void ids_release(struct ids *ids);

#endif
