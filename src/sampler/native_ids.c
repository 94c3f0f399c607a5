#include "sampler/native_ids.h"

#include "base/bytes.h"

#include <stdlib.h>

enum {
    /* struct pthread of glibc 2.17 to 2.41 and of musl is at least this large, and its tid lies within. */
    PTHREAD_BYTES = 1024,
    TID_ALIGNMENT = 4,
    /* glibc's (nptl/descr.h 2.4 to 2.41): behind the thread's header, padded, and a list's two pointers. The header of
     * x86 is the thread control block, with its own address in the first and the third word (tcbhead_t); elsewhere it
     * is two ints. musl's struct has its address and then, in the third and fourth word, those of its neighbours. */
    GLIBC_X86_TID = 704 + 16,
    GLIBC_TID = 192 + 16,
};

enum status native_ids_init(struct native_ids *ids, struct process *process, const struct system_threads *system) {
    *ids = (struct native_ids){.process = process, .system = system, .pthread_offset = SIZE_MAX};
    ids->claimed = calloc(system->count + 1, sizeof ids->claimed[0]);
    if (ids->claimed == NULL)
        return STATUS_FAILED;
    for (size_t i = 0; i < system->count; i++)
        TRY(map_set(&ids->by_own_tid, (uint64_t)system->items[i].own_tid, i));
    return STATUS_OK;
}

void native_ids_release(struct native_ids *ids) {
    map_release(&ids->by_own_tid);
    free(ids->claimed);
    *ids = (struct native_ids){0};
}

bool native_ids_is_claimed(const struct native_ids *ids, size_t index) {
    return ids->claimed[index];
}

static const struct system_thread *claim(struct native_ids *ids, uint64_t tid) {
    uint64_t index = 0;
    if (tid == 0 || !map_get(&ids->by_own_tid, tid, &index))
        return NULL;
    ids->claimed[index] = true;
    return &ids->system->items[index];
}

static bool is_thread(const struct native_ids *ids, uint32_t tid) {
    uint64_t index = 0;
    return tid != 0 && map_get(&ids->by_own_tid, tid, &index);
}

/* In a container, where the first threads' ids are 1, 2 and 3, other words hold such numbers, too. */
static size_t tid_offset_of_glibc(const uint8_t bytes[PTHREAD_BYTES], uint64_t thread_id) {
    enum { WORD = sizeof(uint64_t) };
    if (load_u64(bytes) != thread_id)
        return GLIBC_TID;
    bool is_x86 = load_u64(bytes + 2 * WORD) == thread_id && load_u64(bytes + 3 * WORD) != thread_id;
    return is_x86 ? GLIBC_X86_TID : SIZE_MAX;
}

/* A Python thread id is the address of its struct pthread, in which the C library keeps the kernel's id. Where, differs
 * between libraries: if it is not where glibc has it, it is looked for. */
static uint64_t tid_from_pthread(struct native_ids *ids, uint64_t thread_id) {
    uint8_t bytes[PTHREAD_BYTES];
    if (memory_read(process_memory(ids->process), thread_id, bytes, sizeof bytes) != STATUS_OK)
        return 0;
    size_t offset_of_glibc = tid_offset_of_glibc(bytes, thread_id);
    if (offset_of_glibc != SIZE_MAX && is_thread(ids, load_u32(bytes + offset_of_glibc)))
        return load_u32(bytes + offset_of_glibc);
    if (ids->pthread_offset == SIZE_MAX)
        for (size_t offset = 0; offset < sizeof bytes; offset += TID_ALIGNMENT)
            if (is_thread(ids, load_u32(bytes + offset))) {
                ids->pthread_offset = offset;
                break;
            }
    return ids->pthread_offset == SIZE_MAX ? 0 : load_u32(bytes + ids->pthread_offset);
}

const struct system_thread *native_ids_claim(struct native_ids *ids, const struct thread_state *state,
                                             const struct thread_name *name) {
    const struct system_thread *thread = claim(ids, state->native_thread_id);
    if (thread == NULL && name != NULL)
        thread = claim(ids, name->native_id);
    if (thread == NULL)
        thread = claim(ids, tid_from_pthread(ids, state->thread_id));
    return thread;
}
