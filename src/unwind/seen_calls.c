#include "unwind/seen_calls.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Calls of one key share a set; so do calls of some others. */
    SETS = 256,
    WAYS = 16,
    TRUSTED_TIMES = 2,
    /* The same of what is guessed: by then it has shown what it runs by name, if it does so now and then. */
    TRUSTED_GUESS = 16,
    /* Of what is seen a part is put together of two calls, on a busy machine up to a sixth. That this is what was seen
     * first, so much more often than anything else, happens once in some thousands of times. */
    CONVINCING_TIMES = 5,
    OFTEN_TIMES = 16,
    DECIDING_TIMES = 32,
    SETTLED_TIMES = 64,
    MAX_TIMES = 1 << 12,
    /* Of what was seen with the same key, at least so much is to be one kind for that to be believed. */
    TRUSTED_RATIO = 8,
    /* The same of what comes after the same beginning, beside what comes after it most often. */
    TRUSTED_BRANCH = 3,
    /* The same of where in its code a frame stands. */
    TRUSTED_SITE = 256,
    PERIOD_CALLS = 1 << 17,
};

static_assert(SETS == 8 * sizeof(((struct seen_calls *)NULL)->used), "a bit for each set");

static void clear_set(struct seen_call *set) {
    for (size_t i = 0; i < WAYS; i++)
        free(set[i].links);
    memset(set, 0, WAYS * sizeof set[0]);
}

/* Dumps forget before every attempt at a stack, and most of those note little. */
void seen_calls_forget(struct seen_calls *seen) {
    for (size_t word = 0; word < SETS / 64; word++)
        for (uint64_t used = seen->used[word]; used != 0; used &= used - 1)
            clear_set(seen->calls + (word * 64 + (size_t)__builtin_ctzll(used)) * WAYS);
    memset(seen->used, 0, sizeof seen->used);
    seen->noted = 0;
}

void seen_calls_release(struct seen_calls *seen) {
    seen_calls_forget(seen);
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
    return one->key == other->key && one->instruction_bytes == other->instruction_bytes && one->times > 0 &&
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
    const size_t used = call->key % SETS;
    seen->used[used / 64] |= UINT64_C(1) << used % 64;
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

/* Whether two calls run the same in their first `depth` links. */
static bool same_beginning(const struct seen_call *one, const struct seen_call *other, uint32_t depth) {
    if (one->times == 0 || one->key != other->key || one->link_count < depth)
        return false;
    for (uint32_t i = 0; i < depth; i++)
        if (one->links[i].code != other->links[i].code)
            return false;
    return true;
}

/* How often what a call has in its link at `depth` was seen after what it has before that. */
static uint32_t count_branch(const struct seen_call *set, const struct seen_call *call, uint32_t depth) {
    uint32_t times = 0;
    for (size_t i = 0; i < WAYS; i++)
        times += same_beginning(&set[i], call, depth + 1) ? set[i].times : 0;
    return times;
}

/* Whether the one goes on at `depth` like the other, but runs there what is named, which the other does not. */
static bool outdoes(const struct seen_call *one, const struct seen_call *other, uint32_t depth) {
    return same_beginning(one, other, depth) && one->link_count > depth && one->links[depth].named &&
           !other->links[depth].named;
}

/* The same of any that is known, where what the other runs was seen less often than that. */
static bool is_outdone(const struct seen_calls *seen, const struct seen_call *call, uint32_t times) {
    const struct seen_call *set = seen->calls != NULL ? set_of(seen, call->key) : NULL;
    for (size_t i = 0; set != NULL && i < WAYS; i++)
        for (uint32_t depth = 0; depth < call->link_count; depth++)
            if (outdoes(&set[i], call, depth) && count_branch(set, call, depth) < times)
                return true;
    return false;
}

bool seen_calls_is_outdone(const struct seen_calls *seen, const struct seen_call *call) {
    return is_outdone(seen, call, UINT32_MAX);
}

bool seen_calls_is_unheard_of(const struct seen_calls *seen, const struct seen_call *call) {
    return is_outdone(seen, call, TRUSTED_TIMES);
}

/* Whether there is nothing in the link at `depth` that was seen so much more often, after the same beginning, that this
 * may be put together of two calls. */
static bool is_branch_trusted(const struct seen_call *set, const struct seen_call *call, uint32_t depth) {
    uint32_t own = count_branch(set, call, depth), all = 0, most = own;
    for (size_t i = 0; i < WAYS; i++) {
        if (outdoes(&set[i], call, depth))
            return false;
        if (!same_beginning(&set[i], call, depth) || set[i].link_count <= depth || outdoes(call, &set[i], depth))
            continue;
        all += set[i].times;
        uint32_t times = set[i].links[depth].code != call->links[depth].code ? count_branch(set, &set[i], depth) : own;
        most = times > most ? times : most;
    }
    const uint32_t convincing = call->link_count < SEEN_CALLS_LONG_LINKS ? CONVINCING_TIMES : TRUSTED_TIMES;
    if (own == most && (all - own) + convincing <= own)
        return true;
    return own == most ? all >= DECIDING_TIMES : all >= SETTLED_TIMES && own * TRUSTED_BRANCH >= most;
}

/* Whether the same frames have led there from other instructions of theirs, and next to never from these: a frame's
 * instruction and the extent of its stack can be copied at a moment's distance. */
static bool is_beside_the_site(const struct seen_call *set, const struct seen_call *call) {
    for (size_t i = 0; call->link_count > 0 && i < WAYS; i++)
        if (set[i].link_count == call->link_count && same_beginning(&set[i], call, call->link_count) &&
            set[i].times / TRUSTED_SITE > call->times)
            return true;
    return false;
}

static bool is_trusted(const struct seen_call *set, const struct seen_call *call) {
    bool trusted = call->times >= (call->guessed ? TRUSTED_GUESS : TRUSTED_TIMES) && !is_beside_the_site(set, call);
    for (uint32_t i = 0; i < call->link_count && trusted; i++)
        trusted = is_branch_trusted(set, call, i);
    return trusted;
}

bool seen_calls_knows(const struct seen_calls *seen, const struct seen_call *call, bool has_callee) {
    const struct seen_call *set = seen->calls != NULL ? set_of(seen, call->key) : NULL, *known = NULL;
    uint32_t all_times = 0;
    for (size_t i = 0; set != NULL && i < WAYS; i++) {
        if (set[i].key != call->key)
            continue;
        known = is_same(&set[i], call, has_callee) ? &set[i] : known;
        all_times += set[i].times;
    }
    if (known == NULL || !is_trusted(set, known))
        return false;
    return known->link_count > 0 || known->times * TRUSTED_RATIO >= all_times;
}

bool seen_calls_is_rare(const struct seen_calls *seen, const struct seen_call *call) {
    const struct seen_call *set = seen->calls != NULL ? set_of(seen, call->key) : NULL;
    uint32_t times = 0, all_times = 0;
    for (size_t i = 0; set != NULL && i < WAYS; i++) {
        if (set[i].key != call->key)
            continue;
        times = is_same(&set[i], call, true) ? set[i].times : times;
        all_times += set[i].times;
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

/* One of those of the set that fit, the likelier the more often it was seen. */
static const struct seen_call *choose(const struct seen_call *set, const bool fits[WAYS], uint32_t random) {
    uint64_t times = 0;
    for (size_t i = 0; i < WAYS; i++)
        times += fits[i] ? set[i].times : 0;
    uint64_t chosen = times * random >> 32;
    for (size_t i = 0; times > 0 && i < WAYS; i++) {
        if (!fits[i])
            continue;
        if (chosen < set[i].times)
            return &set[i];
        chosen -= set[i].times;
    }
    return NULL;
}

const struct seen_call *seen_calls_recall_at(const struct seen_calls *seen, uint32_t key, int32_t instruction_bytes,
                                             bool with_links, uint32_t random) {
    const struct seen_call *set = seen->calls != NULL ? set_of(seen, key) : NULL;
    bool fits[WAYS] = {false};
    for (size_t i = 0; set != NULL && i < WAYS; i++)
        fits[i] = set[i].key == key && set[i].instruction_bytes == instruction_bytes &&
                  (!with_links || set[i].link_count > 0) && is_trusted(set, &set[i]);
    return choose(set, fits, random);
}

const struct seen_call *seen_calls_recall_longer(const struct seen_calls *seen, const struct seen_call *call,
                                                 uint32_t random) {
    const struct seen_call *set = seen->calls != NULL ? set_of(seen, call->key) : NULL;
    bool fits[WAYS] = {false};
    for (size_t i = 0; set != NULL && i < WAYS; i++)
        fits[i] = set[i].link_count > call->link_count && set[i].instruction_bytes == call->instruction_bytes &&
                  same_beginning(&set[i], call, call->link_count) && is_trusted(set, &set[i]);
    return choose(set, fits, random);
}

const struct seen_call *seen_calls_recall(const struct seen_calls *seen, uint32_t key, int32_t instruction_bytes,
                                          bool with_links, uint32_t random) {
    const struct seen_call *set = seen->calls != NULL ? set_of(seen, key) : NULL, *found = NULL;
    for (size_t i = 0; set != NULL && i < WAYS; i++) {
        if (set[i].key != key || with_links != (set[i].link_count > 0) || !is_trusted(set, &set[i]))
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
