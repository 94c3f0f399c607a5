#include "sampler/agent_region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* All that is mapped, for the handler. Changed and touched by one thread only. */
static struct shared_piece *pieces;
static struct sigaction action_before;

/* Touching a page beyond the file's end is a SIGBUS: a page of zeros takes its place. A SIGBUS of any other kind is
 * handled as before, when its instruction comes again. */
static void replace_page(int number, siginfo_t *info, void *context) {
    (void)context;
    uintptr_t at = (uintptr_t)info->si_addr;
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (struct shared_piece *piece = pieces; piece != NULL; piece = piece->next) {
        uintptr_t start = (uintptr_t)piece->start;
        if (at < start || at - start >= piece->size_bytes)
            continue;
        piece->damaged = 1;
        void *page = (void *)(at & ~(page_bytes - 1));
        if (mmap(page, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page)
            return;
    }
    (void)sigaction(number, &action_before, NULL);
}

static void watch_for_cuts(void) {
    struct sigaction action = {.sa_sigaction = replace_page, .sa_flags = (int)SA_SIGINFO};
    if (pieces == NULL)
        (void)sigaction(SIGBUS, &action, &action_before);
}

static bool map_piece(struct shared_piece *piece, int fd, uint64_t offset, size_t size_bytes) {
    void *start = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    if (start == MAP_FAILED)
        return false;
    watch_for_cuts();
    *piece = (struct shared_piece){.start = start, .size_bytes = size_bytes, .next = pieces};
    pieces = piece;
    return true;
}

static void unmap_piece(struct shared_piece *piece) {
    if (piece->start == NULL)
        return;
    struct shared_piece **at = &pieces;
    while (*at != NULL && *at != piece)
        at = &(*at)->next;
    if (*at == piece)
        *at = piece->next;
    if (pieces == NULL)
        (void)sigaction(SIGBUS, &action_before, NULL);
    (void)munmap(piece->start, piece->size_bytes);
    piece->start = NULL;
}

static enum status open_file(int folder_fd, const char *name, struct agent_region *region) {
    struct stat info;
    region->fd = openat(folder_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (region->fd < 0 && (errno == EMFILE || errno == ENFILE))
        return STATUS_NO_FILES;
    if (region->fd < 0)
        return errno == ENOENT ? STATUS_NOT_FOUND : STATUS_DAMAGED;
    if (fstat(region->fd, &info) != 0 || !S_ISREG(info.st_mode))
        return STATUS_DAMAGED;
    region->device = major(info.st_dev) << 20 | minor(info.st_dev);
    region->inode = info.st_ino;
    /* It is made, then it gets its size. */
    region->is_whole = (uint64_t)info.st_size >= WIRE_REGION_BYTES;
    return region->is_whole || info.st_size == sizeof(struct wire_region) ? STATUS_OK : STATUS_TORN;
}

static enum status read_facts(struct agent_region *region) {
    struct wire_region *facts = &region->facts;
    if (region->is_whole) {
        const struct wire_region *header = agent_region_header(region);
        if (atomic_load_explicit(&header->magic, memory_order_acquire) == 0)
            return STATUS_TORN;
        memcpy(facts, header, sizeof *facts);
    } else if (pread(region->fd, facts, sizeof *facts, 0) != (ssize_t)sizeof *facts) {
        return STATUS_DAMAGED;
    }
    facts->reason[sizeof facts->reason - 1] = '\0';
    facts->began_in[sizeof facts->began_in - 1] = '\0';
    bool is_known = facts->ring_bytes == 0 || facts->ring_bytes == WIRE_LARGE_RING_BYTES;
    return facts->magic == WIRE_MAGIC && facts->version == WIRE_VERSION && is_known ? STATUS_OK : STATUS_DAMAGED;
}

enum status agent_region_open(int folder_fd, const char *name, struct agent_region **result) {
    struct agent_region *region = calloc(1, sizeof *region);
    if (region == NULL)
        return STATUS_FAILED;
    region->fd = -1;
    enum status status = open_file(folder_fd, name, region);
    if (status == STATUS_OK && region->is_whole && !map_piece(&region->head, region->fd, 0, WIRE_RINGS_OFFSET))
        status = STATUS_FAILED;
    if (status == STATUS_OK)
        status = read_facts(region);
    if (status != STATUS_OK) {
        agent_region_close(region);
        return status;
    }
    *result = region;
    return STATUS_OK;
}

void agent_region_close(struct agent_region *region) {
    if (region == NULL)
        return;
    for (uint32_t i = 0; i < WIRE_SLOTS; i++)
        unmap_piece(&region->rings[i]);
    unmap_piece(&region->head);
    if (region->fd >= 0)
        (void)close(region->fd);
    free(region);
}

enum status agent_region_ring(struct agent_region *region, uint32_t index, struct wire_ring *ring) {
    struct shared_piece *piece = &region->rings[index];
    uint32_t ring_bytes = region->facts.ring_bytes;
    if (piece->start == NULL &&
        !map_piece(piece, region->fd, wire_large_ring_offset(index, ring_bytes), wire_ring_bytes(ring_bytes)))
        return STATUS_FAILED;
    *ring = (struct wire_ring){agent_region_slot(region, index), piece->start, ring_bytes};
    return STATUS_OK;
}

bool agent_region_is_damaged(const struct agent_region *region) {
    if (region->head.damaged)
        return true;
    for (uint32_t i = 0; i < WIRE_SLOTS; i++)
        if (region->rings[i].damaged)
            return true;
    return false;
}

enum wire_state agent_region_state(const struct agent_region *region) {
    return (enum wire_state)atomic_load_explicit(&agent_region_header(region)->state, memory_order_acquire);
}

void agent_region_reason(const struct agent_region *region, char reason[WIRE_REASON_BYTES]) {
    memcpy(reason, agent_region_header(region)->reason, WIRE_REASON_BYTES);
    reason[WIRE_REASON_BYTES - 1] = '\0';
}

bool agent_region_is_paused(const struct agent_region *region) {
    return atomic_load_explicit(&agent_region_header(region)->control, memory_order_relaxed) == WIRE_CONTROL_PAUSE;
}

void agent_region_control(const struct agent_region *region, enum wire_control control) {
    atomic_store_explicit(&agent_region_header(region)->control, (uint32_t)control, memory_order_release);
}
