#include "unwind/outside.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* What is in one page is there when any of it is. To copy all of one costs not twice what a frame of it does, and
     * coroutines that await one another, about as large, are mostly allocated from few. */
    PAGE_BYTES = 4096,
    MAX_PAGES = 8,
    /* One alone is mostly that which was looked for. */
    SINGLE_READS = 1,
};

struct page_copy {
    remote_addr address;
    uint8_t bytes[PAGE_BYTES];
};

/* NULL: it cannot be read, or as many were. */
static const struct page_copy *read_page(struct stack_tracker *tracker, remote_addr address) {
    if (tracker->pages == NULL && (tracker->pages = malloc(MAX_PAGES * sizeof tracker->pages[0])) == NULL)
        return NULL;
    for (size_t i = 0; i < tracker->page_count; i++)
        if (tracker->pages[i].address == address)
            return &tracker->pages[i];
    if (tracker->page_count == MAX_PAGES)
        return NULL;
    struct page_copy *page = &tracker->pages[tracker->page_count];
    page->address = address;
    if (memory_read(tracker->runtime->live, address, page->bytes, sizeof page->bytes) != STATUS_OK)
        return NULL;
    tracker->page_count++;
    return page;
}

enum status outside_read_late(struct stack_tracker *tracker, struct outside_frame *frame) {
    const size_t size_bytes = frame->place.size_bytes, offset = frame->place.address % PAGE_BYTES;
    const struct page_copy *page = NULL;
    if (tracker->late_reads++ >= SINGLE_READS && offset + size_bytes <= PAGE_BYTES)
        page = read_page(tracker, frame->place.address - offset);
    if (page == NULL)
        return memory_read(tracker->runtime->live, frame->place.address, frame->bytes, size_bytes);
    memcpy(frame->bytes, page->bytes + offset, size_bytes);
    return STATUS_OK;
}
