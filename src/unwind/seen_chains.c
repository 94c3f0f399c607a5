#include "unwind/seen_chains.h"

#include <stdlib.h>

enum { MAX_LINKS = 1 << 16, MAX_SETS = 1 << 16, WAYS = 4, MAX_TIMES = 1 << 12, RATIO = 4, FIRST_CAPACITY = 64 };

/* Who called a function at a depth, and how often that was seen. */
struct caller_set {
    struct caller_way {
        uint32_t link;
        uint32_t times; /* 0: free */
    } ways[WAYS];
};

void seen_chains_release(struct seen_chains *chains) {
    free(chains->links);
    free(chains->sets);
    map_release(&chains->links_by_content);
    map_release(&chains->sets_by_place);
    *chains = (struct seen_chains){0};
}

void seen_chains_forget(struct seen_chains *chains) {
    chains->link_count = 0;
    chains->set_count = 0;
    map_clear(&chains->links_by_content);
    map_clear(&chains->sets_by_place);
}

static uint64_t mix(uint64_t one, uint64_t other) {
    uint64_t hash = (one ^ other * UINT64_C(0xc2b2ae3d27d4eb4f)) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 31;
}

static uint64_t content_key(const struct chain_link *link) {
    return mix(mix(link->caller, link->code->serial), (uint32_t)link->instruction_bytes);
}

static uint64_t place_key(const struct code *code, size_t depth) {
    return mix(code->serial, depth);
}

static enum status grow(void **items, size_t *capacity, size_t item_bytes) {
    size_t grown = *capacity > 0 ? *capacity * 2 : FIRST_CAPACITY;
    void *moved = realloc(*items, grown * item_bytes);
    if (moved == NULL)
        return STATUS_FAILED;
    *items = moved;
    *capacity = grown;
    return STATUS_OK;
}

/* Where the link is; it is added if need be. */
static enum status find_link(struct seen_chains *chains, const struct chain_link *link, uint32_t *index) {
    uint64_t key = content_key(link), known = 0;
    if (map_get(&chains->links_by_content, key, &known)) {
        *index = (uint32_t)known;
        return STATUS_OK;
    }
    size_t place = chains->link_count > 0 ? chains->link_count : 1;
    if (place >= chains->link_capacity) {
        void *links = chains->links;
        TRY(grow(&links, &chains->link_capacity, sizeof chains->links[0]));
        chains->links = links;
    }
    TRY(map_set(&chains->links_by_content, key, place));
    chains->links[place] = *link;
    chains->link_count = place + 1;
    *index = (uint32_t)place;
    return STATUS_OK;
}

static enum status find_set(struct seen_chains *chains, const struct code *code, size_t depth,
                            struct caller_set **set) {
    uint64_t key = place_key(code, depth), known = 0;
    if (map_get(&chains->sets_by_place, key, &known)) {
        *set = &chains->sets[known];
        return STATUS_OK;
    }
    if (chains->set_count >= chains->set_capacity) {
        void *sets = chains->sets;
        TRY(grow(&sets, &chains->set_capacity, sizeof chains->sets[0]));
        chains->sets = sets;
    }
    TRY(map_set(&chains->sets_by_place, key, chains->set_count));
    *set = &chains->sets[chains->set_count++];
    **set = (struct caller_set){0};
    return STATUS_OK;
}

static void note_in_set(struct caller_set *set, uint32_t link) {
    struct caller_way *way = &set->ways[0];
    for (size_t i = 0; i < WAYS; i++) {
        if (set->ways[i].times > 0 && set->ways[i].link == link) {
            way = &set->ways[i];
            break;
        }
        if (set->ways[i].times < way->times)
            way = &set->ways[i];
    }
    if (way->times > 0 && way->link != link)
        way->times = 0;
    way->link = link;
    if (++way->times == MAX_TIMES)
        for (size_t i = 0; i < WAYS; i++)
            set->ways[i].times /= 2;
}

enum status seen_chains_note(struct seen_chains *chains, const struct tracked_frame *frames, size_t count, size_t depth,
                             size_t known_count) {
    uint32_t link = 0;
    if (chains->link_count + count >= MAX_LINKS || chains->set_count + count >= MAX_SETS)
        seen_chains_forget(chains);
    for (size_t i = 0; i < count && i < MAX_LINKS / 2; i++) {
        struct caller_set *set = NULL;
        struct chain_link own = {frames[i].code, frames[i].instruction_bytes, link};
        if (i >= known_count) {
            TRY(find_set(chains, own.code, depth + i, &set));
            note_in_set(set, link);
        }
        TRY(find_link(chains, &own, &link));
    }
    return STATUS_OK;
}

/* Whether the callers from `link` on are those of the codes behind the first; *link is then the caller of the last. */
static bool leads_on(const struct seen_chains *chains, uint32_t *link, const struct code *const *codes, size_t count) {
    for (size_t i = 1; i < count; i++) {
        if (*link == 0 || chains->links[*link].code != codes[i])
            return false;
        *link = chains->links[*link].caller;
    }
    return *link != 0;
}

uint32_t seen_chains_recall(const struct seen_chains *chains, const struct code *const *codes, size_t count,
                            size_t depth, uint32_t random, uint64_t *times) {
    uint64_t known = 0;
    uint32_t callers[WAYS] = {0}, most = 0;
    *times = 0;
    if (count == 0 || !map_get(&chains->sets_by_place, place_key(codes[0], depth), &known))
        return 0;
    const struct caller_set *set = &chains->sets[known];
    for (size_t i = 0; i < WAYS; i++)
        most = set->ways[i].times > most ? set->ways[i].times : most;
    for (size_t i = 0; i < WAYS; i++) {
        callers[i] = set->ways[i].link;
        /* What was seen so much less often than something else was not seen. */
        if (set->ways[i].times * RATIO < most || !leads_on(chains, &callers[i], codes, count))
            callers[i] = 0;
        *times += callers[i] != 0 ? set->ways[i].times : 0;
    }
    uint64_t chosen = *times * random >> 32;
    for (size_t i = 0; i < WAYS; i++) {
        if (callers[i] == 0)
            continue;
        if (chosen < set->ways[i].times)
            return callers[i];
        chosen -= set->ways[i].times;
    }
    return 0;
}
