#include "export/ids.h"
#include "base/digest.h"
#include "base/map.h"

#include <stdlib.h>

/* More than Linux has (PID_MAX_LIMIT of include/linux/threads.h is 4,194,304), and easy to see through. */
enum { NEXT_ID = 10000000 };

static enum status number_processes(struct ids *ids, const struct profile *profile, struct map *counts) {
    for (size_t i = 0; i < profile->process_count; i++) {
        int32_t pid = profile->processes[i].pid;
        uint64_t before = 0;
        (void)map_get(counts, (uint32_t)pid, &before);
        TRY(map_set(counts, (uint32_t)pid, before + 1));
        ids->pids[i] = pid + (int64_t)before * NEXT_ID;
    }
    return STATUS_OK;
}

static enum status number_threads(struct ids *ids, const struct profile *profile, struct digest_map *counts) {
    for (uint32_t i = 0; i < profile->thread_count; i++) {
        const struct profile_thread *thread = &profile->threads[i];
        const uint64_t fields[] = {thread->process, thread->native_id};
        struct digest key = digest_of(fields, sizeof fields);
        uint32_t before = thread->native_id != 0 ? digest_map_get(counts, key) : 0;
        TRY(digest_map_set(counts, key, before + 1));
        uint64_t moved = (uint64_t)(ids->pids[thread->process] - profile->processes[thread->process].pid);
        ids->tids[i] = (thread->native_id != 0 ? thread->native_id : i) + moved + (uint64_t)before * NEXT_ID;
    }
    return STATUS_OK;
}

enum status ids_init(struct ids *ids, const struct profile *profile) {
    struct map processes = {0};
    struct digest_map threads = {0};
    enum status status = STATUS_FAILED;
    ids->pids = calloc(profile->process_count + 1, sizeof ids->pids[0]);
    ids->tids = calloc(profile->thread_count + 1, sizeof ids->tids[0]);
    if (ids->pids != NULL && ids->tids != NULL)
        status = number_processes(ids, profile, &processes);
    if (status == STATUS_OK)
        status = number_threads(ids, profile, &threads);
    map_release(&processes);
    digest_map_release(&threads);
    if (status != STATUS_OK)
        ids_release(ids);
    return status;
}

void ids_release(struct ids *ids) {
    free(ids->pids);
    free(ids->tids);
    ids->pids = NULL;
    ids->tids = NULL;
}
