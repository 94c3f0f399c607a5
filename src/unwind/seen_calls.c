#include "unwind/seen_calls.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Calls of one key share a set; so do calls of some others. */
    SETS = 512,
    WAYS = 8,
    TRUSTED_TIMES = 2,
    OFTEN_TIMES = 16,
    MAX_TIMES = 1 << 12,
    /* Of what was seen with the same key, at least so much is to be one kind for that to be believed. */
    TRUSTED_RATIO = 8,
    PERIOD_CALLS = 1 << 17,
};

void seen_calls_release(struct seen_calls *seen) {
    for (size_t i = 0; seen->calls != NULL && i < (size_t)SETS * WAYS; i++)
        free(seen->calls[i].links);
    free(seen->calls);
    *seen = (struct seen_calls){0};
}

static uint32_t mix(uint64_t value) {
    uint64_t hash = value * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)((hash ^ hash >> 29) * UINT64_C(0xbf58476d1ce4e5b9) >> 32);
}

uint32_t seen_calls_key(uint32_t caller_path, uint32_t callee_serial) {
    return mix((uint64_t)caller_path << 32 | callee_serial);
}

uint32_t seen_calls_path(uint32_t key, int32_t instruction_bytes) {
    return mix((uint64_t)key << 32 | (uint32_t)instruction_bytes);
}

static struct seen_call *set_of(const struct seen_calls *seen, uint32_t key) {
    return seen->calls + (size_t)(key % SETS) * WAYS;
}

static bool same_links(const struct seen_call *one, const struct seen_call *other, bool has_callee) {
    if (one->link_count != other->link_count || one->link_count > SEEN_CALLS_MAX_LINKS)
        return false;
    for (uint32_t i = 0; i < one->link_count; i++)
        if (one->links[i].code != other->links[i].code ||
            (one->links[i].instruction_bytes != other->links[i].instruction_bytes &&
             (has_callee || i + 1 < one->link_count)))
            return false;
    return true;
}

static bool is_same(const struct seen_call *one, const struct seen_call *other, bool has_callee) {
    return one->times > 0 && one->key == other->key && one->instruction_bytes == other->instruction_bytes &&
           same_links(one, other, has_callee);
}

/* Halves all of a set. */
static void fade(struct seen_call *set) {
    for (size_t i = 0; i < WAYS; i++)
        set[i].times /= 2;
}

/* What is not seen any more goes. */
static void age(struct seen_calls *seen) {
    if (++seen->noted % PERIOD_CALLS == 0)
        for (size_t i = 0; i < SETS; i++)
            fade(seen->calls + i * WAYS);
}

static void put(struct seen_call *place, const struct seen_call *call) {
    struct call_link *links = NULL;
    if (call->link_count > 0 && (links = malloc(call->link_count * sizeof links[0])) == NULL)
        return;
    if (call->link_count > 0)
        memcpy(links, call->links, call->link_count * sizeof links[0]);
    free(place->links);
    *place = *call;
    place->links = links;
    place->times = 1;
}

void seen_calls_note(struct seen_calls *seen, const struct seen_call *call, bool has_callee) {
    if (seen->calls == NULL)
        seen->calls = calloc((size_t)SETS * WAYS, sizeof seen->calls[0]);
    /* Without memory nothing is known: that is no harm. */
    if (seen->calls == NULL || call->link_count > SEEN_CALLS_MAX_LINKS)
        return;
    struct seen_call *set = set_of(seen, call->key), *rarest = set;
    age(seen);
    for (size_t i = 0; i < WAYS; i++) {
        if (is_same(&set[i], call, has_callee)) {
            if (++set[i].times == MAX_TIMES)
                fade(set);
            if (call->link_count > 0)
                set[i].links[call->link_count - 1] = call->links[call->link_count - 1];
            return;
        }
        if (set[i].times < rarest->times)
            rarest = &set[i];
    }
    put(rarest, call);
}

bool seen_calls_knows(const struct seen_calls *seen, const struct seen_call *call, bool has_callee) {
    const struct seen_call *set = seen->calls != NULL ? set_of(seen, call->key) : NULL;
    uint32_t times = 0, all_times = 0;
    for (size_t i = 0; set != NULL && i < WAYS; i++) {
        if (is_same(&set[i], call, has_callee))
            times = set[i].times;
        all_times += set[i].key == call->key ? set[i].times : 0;
    }
    return times >= TRUSTED_TIMES && times * TRUSTED_RATIO >= all_times;
}

bool seen_calls_is_rare(const struct seen_calls *seen, const struct seen_call *call) {
    const struct seen_call *set = seen->calls != NULL ? set_of(seen, call->key) : NULL;
    uint32_t times = 0, all_times = 0;
    for (size_t i = 0; set != NULL && i < WAYS; i++) {
        if (is_same(&set[i], call, true))
            times = set[i].times;
        all_times += set[i].key == call->key ? set[i].times : 0;
    }
    return all_times >= OFTEN_TIMES && times * TRUSTED_RATIO < all_times;
}

bool seen_calls_is_plain(const struct seen_calls *seen, const struct seen_call *call) {
    const struct seen_call *set = seen->calls != NULL ? set_of(seen, call->key) : NULL;
    bool plain = false;
    for (size_t i = 0; set != NULL && i < WAYS; i++) {
        if (set[i].key != call->key || set[i].instruction_bytes != call->instruction_bytes || set[i].times == 0)
            continue;
        if (set[i].link_count > 0)
            return false;
        plain = set[i].times >= TRUSTED_TIMES;
    }
    return plain;
}

static bool fits(const struct seen_call *call, uint32_t key, int32_t instruction_bytes, bool with_links) {
    return call->key == key && call->instruction_bytes == instruction_bytes && call->times >= TRUSTED_TIMES &&
           (!with_links || call->link_count > 0);
}

const struct seen_call *seen_calls_recall_at(const struct seen_calls *seen, uint32_t key, int32_t instruction_bytes,
                                             bool with_links, uint32_t random) {
    const struct seen_call *set = seen->calls != NULL ? set_of(seen, key) : NULL;
    uint64_t times = 0;
    for (size_t i = 0; set != NULL && i < WAYS; i++)
        if (fits(&set[i], key, instruction_bytes, with_links))
            times += set[i].times;
    uint64_t chosen = times * random >> 32;
    for (size_t i = 0; times > 0 && i < WAYS; i++) {
        if (!fits(&set[i], key, instruction_bytes, with_links))
            continue;
        if (chosen < set[i].times)
            return &set[i];
        chosen -= set[i].times;
    }
    return NULL;
}

const struct seen_call *seen_calls_recall(const struct seen_calls *seen, uint32_t key, int32_t instruction_bytes,
                                          bool with_links, uint32_t random) {
    const struct seen_call *set = seen->calls != NULL ? set_of(seen, key) : NULL, *found = NULL;
    for (size_t i = 0; set != NULL && i < WAYS; i++) {
        if (set[i].key != key || set[i].times < TRUSTED_TIMES || with_links != (set[i].link_count > 0))
            continue;
        /* In a loop, what is behind comes after all that is ahead. */
        uint32_t distance = (uint32_t)(set[i].instruction_bytes - instruction_bytes);
        if (found == NULL || distance < (uint32_t)(found->instruction_bytes - instruction_bytes))
            found = &set[i];
    }
    if (found == NULL || found->link_count == 0)
        return found;
    return seen_calls_recall_at(seen, key, found->instruction_bytes, true, random);
}
