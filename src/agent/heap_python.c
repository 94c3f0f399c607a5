#include "agent/heap_python.h"

#include "agent/agent.h"
#include "agent/exact.h"
#include "agent/exact_quick.h"
#include "agent/heap.h"
#include "agent/mimalloc.h"
#include "agent/thread_word.h"

#include <dlfcn.h>
#include <locale.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NOT_INLINE __attribute__((noinline))

enum {
    /* PyMemAllocatorDomain (Include/cpython/pymem.h 3.8 to 3.15) */
    DOMAIN_RAW,
    DOMAIN_MEM,
    DOMAIN_OBJECT,
    DOMAINS,
    /* Larger blocks pymalloc gets from malloc (SMALL_REQUEST_THRESHOLD, Objects/obmalloc.c, pycore_obmalloc.h). */
    PYMALLOC_MAX_BYTES = 512,
    MOST_HEAD_BYTES = 64,
};

/* PyMemAllocatorEx (Include/cpython/pymem.h 3.8 to 3.15) */
struct allocator {
    void *context;
    void *(*malloc)(void *context, size_t size_bytes);
    void *(*calloc)(void *context, size_t count, size_t size_bytes);
    void *(*realloc)(void *context, void *block, size_t size_bytes);
    void (*free)(void *context, void *block);
};

/* PyObjectArenaAllocator (Include/cpython/objimpl.h 3.8 to 3.15) */
struct arena_allocator {
    void *context;
    void *(*alloc)(void *context, size_t size_bytes);
    void (*free)(void *context, void *arena, size_t size_bytes);
};

static struct {
    void (*get_arenas)(struct arena_allocator *allocator);
    void (*set_arenas)(struct arena_allocator *allocator);
    void (*get)(int domain, struct allocator *allocator);
    void (*set)(int domain, struct allocator *allocator);
    int (*is_initialised)(void);
    bool free_threaded;
} python;

/* What stands behind the hooks. A hook that is called late, by who has kept it, still finds what it stood before. */
static struct allocator originals[DOMAINS];
static struct allocator pymalloc;
static struct arena_allocator arenas;
/* The thread's state, and where it is read from (agent/thread_word.h); 0: that is not known. */
static void *(*current_state)(void);
static int64_t state_offset;
static uintptr_t pool_bytes; /* 0: no arena was seen yet, or none of a size that is known */

/* --- Those that get every block from malloc: it is counted there, and only told whose it is. --- */

static uint32_t enter_domain(void) {
    uint32_t domain = heap_thread.domain;
    heap_thread.domain = WIRE_DOMAIN_PYTHON;
    return domain;
}

static void *label_malloc(void *context, size_t size_bytes) {
    const struct allocator *original = context;
    uint32_t domain = enter_domain();
    void *block = original->malloc(original->context, size_bytes);
    heap_thread.domain = domain;
    return block;
}

static void *label_calloc(void *context, size_t count, size_t size_bytes) {
    const struct allocator *original = context;
    uint32_t domain = enter_domain();
    void *block = original->calloc(original->context, count, size_bytes);
    heap_thread.domain = domain;
    return block;
}

static void *label_realloc(void *context, void *block, size_t size_bytes) {
    const struct allocator *original = context;
    uint32_t domain = enter_domain();
    void *moved = original->realloc(original->context, block, size_bytes);
    heap_thread.domain = domain;
    return moved;
}

static void label_free(void *context, void *block) {
    const struct allocator *original = context;
    original->free(original->context, block);
}

/* --- pymalloc. Its free is not hooked: a small object that is sampled is made to be one of malloc's, as larger ones
 * are, so that it comes to free in the end, and nobody else does. --- */

/* As if the object were one that is too large for a pool. NULL: it is not, or there is no memory. */
static void *get_from_malloc(void *(*get)(void *argument), void *argument) {
    struct heap_thread *thread = &heap_thread;
    int64_t left = thread->left;
    thread->inside++;
    thread->nested = NULL;
    thread->left = -1; /* so that malloc looks at it */
    void *block = get(argument);
    thread->left = left;
    thread->inside--;
    return block;
}

static void *get_malloc(void *argument) {
    (void)argument;
    return pymalloc.malloc(pymalloc.context, PYMALLOC_MAX_BYTES + 1);
}

static void *get_calloc(void *argument) {
    (void)argument;
    return pymalloc.calloc(pymalloc.context, 1, PYMALLOC_MAX_BYTES + 1);
}

static void *get_realloc(void *argument) {
    return pymalloc.realloc(pymalloc.context, argument, PYMALLOC_MAX_BYTES + 1);
}

/* The block, if it is to be sampled; else NULL. */
static void *sample_pymalloc(void *(*get)(void *argument), void *argument, size_t size_bytes, size_t grown_bytes) {
    struct heap_choice choice;
    if (!heap_choose(grown_bytes, &choice))
        return NULL;
    void *block = get_from_malloc(get, argument);
    /* By the address that comes to free: debug hooks of the raw domain put something before what pymalloc gets. */
    void *given = heap_thread.nested;
    if (given != NULL && (uintptr_t)block - (uintptr_t)given < MOST_HEAD_BYTES)
        heap_tell(&(struct heap_block){.address = given, .size_bytes = size_bytes, .grown_bytes = grown_bytes}, &choice,
                  WIRE_DOMAIN_PYTHON);
    return block;
}

static bool is_struck(size_t size_bytes) {
    return (heap_thread.left -= (int64_t)size_bytes) < 0;
}

/* What follows is called for every object: what is seldom needed stands apart, so that the rest needs no stack. */
static NOT_INLINE void *pymalloc_sample_malloc(size_t size_bytes) {
    void *block = sample_pymalloc(get_malloc, NULL, size_bytes, size_bytes);
    return block != NULL ? block : pymalloc.malloc(pymalloc.context, size_bytes);
}

static NOT_INLINE void *pymalloc_large_malloc(size_t size_bytes) {
    return label_malloc(&pymalloc, size_bytes);
}

static void *pymalloc_malloc(void *context, size_t size_bytes) {
    if (size_bytes > PYMALLOC_MAX_BYTES)
        return pymalloc_large_malloc(size_bytes);
    if (is_struck(size_bytes))
        return pymalloc_sample_malloc(size_bytes);
    return pymalloc.malloc(context, size_bytes);
}

static NOT_INLINE void *pymalloc_sample_calloc(size_t count, size_t size_bytes) {
    void *block = sample_pymalloc(get_calloc, NULL, count * size_bytes, count * size_bytes);
    return block != NULL ? block : pymalloc.calloc(pymalloc.context, count, size_bytes);
}

static NOT_INLINE void *pymalloc_large_calloc(size_t count, size_t size_bytes) {
    return label_calloc(&pymalloc, count, size_bytes);
}

static void *pymalloc_calloc(void *context, size_t count, size_t size_bytes) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size_bytes, &bytes) || bytes > PYMALLOC_MAX_BYTES)
        return pymalloc_large_calloc(count, size_bytes);
    if (is_struck(bytes))
        return pymalloc_sample_calloc(count, size_bytes);
    return pymalloc.calloc(context, count, size_bytes);
}

/* How large an object in a pool can have been. The pool begins with struct pool_header (Objects/obmalloc.c 3.8 to 3.11,
 * Include/internal/pycore_obmalloc.h 3.12 to 3.15). */
static size_t pool_size_class(const void *block) {
    enum { INDEX_OFFSET = 36, CLASS_BYTES = 16 };
    uint32_t index;
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    memcpy(&index, (const char *)((uintptr_t)block & ~(pool_bytes - 1)) + INDEX_OFFSET, sizeof index);
    return index < PYMALLOC_MAX_BYTES / CLASS_BYTES ? (size_t)(index + 1) * CLASS_BYTES : 0;
}

/* pymalloc is through with a block, and nothing has come to malloc: the block was in a pool, and when no arena was
 * given back either, the pool still says of which size. */
static size_t size_in_pool(const void *block, uint32_t resizes, uint32_t arena_frees) {
    const struct heap_thread *thread = &heap_thread;
    bool is_known = pool_bytes != 0 && thread->resizes == resizes && thread->arena_frees == arena_frees;
    return is_known ? pool_size_class(block) : 0;
}

static void *pymalloc_realloc(void *context, void *block, size_t size_bytes) {
    if (block == NULL)
        return pymalloc_malloc(context, size_bytes);
    uint32_t resizes = heap_thread.resizes, arena_frees = heap_thread.arena_frees;
    void *moved = label_realloc(&pymalloc, block, size_bytes);
    if (moved == NULL || moved == block || size_bytes > PYMALLOC_MAX_BYTES || heap_thread.resizes != resizes)
        return moved;
    size_t old_bytes = size_in_pool(block, resizes, arena_frees);
    if (size_bytes <= old_bytes || !is_struck(size_bytes - old_bytes))
        return moved;
    void *sampled = sample_pymalloc(get_realloc, moved, size_bytes, size_bytes - old_bytes);
    return sampled != NULL ? sampled : moved;
}

/* --- All others: what they do is not known, so that they are counted here and nothing that they call is. --- */

static int64_t go_inside(void) {
    heap_thread.inside++;
    return heap_thread.left;
}

static void come_out(int64_t left) {
    heap_thread.left = left;
    heap_thread.inside--;
}

static void *count_block(void *address, size_t size_bytes) {
    if (heap_is_exact && address != NULL && heap_thread.inside == 0 &&
        exact_given((uint64_t)(uintptr_t)address, size_bytes)) {
        if (size_bytes > PYMALLOC_MAX_BYTES)
            heap_note_counted(size_bytes);
        return address;
    }
    if (address != NULL && is_struck(size_bytes)) {
        uint32_t domain = enter_domain();
        heap_look(&(struct heap_block){.address = address, .size_bytes = size_bytes, .grown_bytes = size_bytes});
        heap_thread.domain = domain;
    }
    return address;
}

static void count_growth(const struct heap_block *block) {
    uint32_t domain = enter_domain();
    heap_look(block);
    heap_thread.domain = domain;
}

static void *other_malloc(void *context, size_t size_bytes) {
    const struct allocator *original = context;
    int64_t left = go_inside();
    void *block = original->malloc(original->context, size_bytes);
    come_out(left);
    return count_block(block, size_bytes);
}

static void *other_calloc(void *context, size_t count, size_t size_bytes) {
    const struct allocator *original = context;
    int64_t left = go_inside();
    void *block = original->calloc(original->context, count, size_bytes);
    come_out(left);
    return count_block(block, count * size_bytes);
}

static NOT_INLINE void other_free(void *context, void *block) {
    const struct allocator *original = context;
    if (sampled_may_hold((uint64_t)(uintptr_t)block))
        heap_give_back(block);
    original->free(original->context, block);
}

static bool take_out(void *block, struct sampled *sampled) {
    uint64_t address = (uint64_t)(uintptr_t)block;
    if (heap_is_exact && exact_quick_take_out(address, sampled))
        return true;
    return sampled_may_hold(address) && heap_take_out(block, sampled);
}

static void *other_realloc(void *context, void *block, size_t size_bytes) {
    const struct allocator *original = context;
    if (block == NULL)
        return other_malloc(context, size_bytes);
    struct sampled sampled;
    bool is_sampled = take_out(block, &sampled);
    int64_t left = go_inside();
    void *moved = original->realloc(original->context, block, size_bytes);
    come_out(left);
    if (!is_sampled)
        return moved == block ? moved : count_block(moved, size_bytes);
    size_t old_bytes = sampled.size_bytes;
    if (heap_is_exact && moved != NULL && exact_resized(&sampled, (uint64_t)(uintptr_t)moved, size_bytes)) {
        heap_note_counted(size_bytes > old_bytes ? size_bytes - old_bytes : 0);
        return moved;
    }
    heap_keep(&sampled, moved != NULL ? moved : block, moved != NULL ? size_bytes : old_bytes);
    if (heap_is_exact && moved != NULL && size_bytes > old_bytes)
        count_growth(&(struct heap_block){moved, size_bytes, size_bytes - old_bytes, sampled.id});
    return moved;
}

/* --- mimalloc: as above, but that its account says how large each block is, so that the footprint has it, and what
 * realloc adds is known. --- */

static inline bool count_small_mimalloc(void *block, size_t size_bytes) {
    if (!heap_is_exact || heap_thread.inside != 0 || size_bytes - 1 >= BLOCKS_SIZE_BEHIND - 1)
        return false;
    const void *state = state_offset != 0 ? thread_word(state_offset) : current_state();
    return exact_quick_given((uint64_t)(uintptr_t)block, size_bytes, state, EXACT_FRAMES_LINKED);
}

static void *count_mimalloc(void *block, size_t size_bytes) {
    if (block != NULL)
        heap_thread.delta += (int64_t)mimalloc_new_block_size(block, size_bytes);
    /* Told first: if this makes a new peak, then the block is in it. */
    if (!count_small_mimalloc(block, size_bytes))
        count_block(block, size_bytes);
    if (heap_delta_is_large())
        heap_flush();
    return block;
}

static void *mimalloc_malloc(void *context, size_t size_bytes) {
    const struct allocator *original = context;
    int64_t left = go_inside();
    void *block = original->malloc(original->context, size_bytes);
    come_out(left);
    return count_mimalloc(block, size_bytes);
}

static void *mimalloc_calloc(void *context, size_t count, size_t size_bytes) {
    const struct allocator *original = context;
    int64_t left = go_inside();
    void *block = original->calloc(original->context, count, size_bytes);
    come_out(left);
    return count_mimalloc(block, count * size_bytes);
}

static void mimalloc_free(void *context, void *block) {
    const struct allocator *original = context;
    uint64_t address = (uint64_t)(uintptr_t)block;
    heap_thread.delta -= (int64_t)mimalloc_block_size(block);
    bool is_counted = heap_is_exact && exact_quick_back(address);
    if (!is_counted && sampled_may_hold(address))
        heap_give_back(block);
    if (heap_delta_is_large())
        heap_flush();
    original->free(original->context, block);
}

/* What a block grows by is told in what it takes, as what the program had asked for before is not known. */
static void note_mimalloc_resized(void *moved, size_t size_bytes, size_t old_bytes, struct sampled *sampled) {
    size_t new_bytes = mimalloc_block_size(moved);
    struct heap_block block = {.address = moved, .size_bytes = size_bytes};
    if (new_bytes > old_bytes)
        block.grown_bytes = new_bytes - old_bytes < size_bytes ? new_bytes - old_bytes : size_bytes;
    if (heap_is_exact && sampled != NULL)
        block.grown_bytes = size_bytes > sampled->size_bytes ? size_bytes - sampled->size_bytes : 0;
    if (sampled != NULL) {
        block.id = sampled->id;
        heap_keep(sampled, moved, size_bytes);
    }
    heap_thread.delta += (int64_t)new_bytes - (int64_t)old_bytes;
    heap_thread.left -= (int64_t)block.grown_bytes;
    if (heap_thread.left >= 0 && !heap_delta_is_large())
        return;
    uint32_t domain = enter_domain();
    heap_look(&block);
    heap_thread.domain = domain;
}

static void *mimalloc_realloc(void *context, void *block, size_t size_bytes) {
    const struct allocator *original = context;
    if (block == NULL)
        return mimalloc_malloc(context, size_bytes);
    size_t old_bytes = mimalloc_block_size(block);
    if (old_bytes == 0)
        return other_realloc(context, block, size_bytes);
    struct sampled sampled;
    bool is_sampled = sampled_may_hold((uint64_t)(uintptr_t)block) && heap_take_out(block, &sampled);
    int64_t left = go_inside();
    void *moved = original->realloc(original->context, block, size_bytes);
    come_out(left);
    if (moved != NULL)
        note_mimalloc_resized(moved, size_bytes, old_bytes, is_sampled ? &sampled : NULL);
    else if (is_sampled)
        heap_keep(&sampled, block, sampled.size_bytes);
    return moved;
}

/* --- pymalloc, where every allocation is counted: as above, but quicker for what is small. --- */

static NOT_INLINE void *count_small(void *block, size_t size_bytes) {
    if (block != NULL && !exact_given((uint64_t)(uintptr_t)block, size_bytes))
        count_growth(&(struct heap_block){.address = block, .size_bytes = size_bytes, .grown_bytes = size_bytes});
    return block;
}

/* Up to 3.10. */
static void *objects_malloc(void *context, size_t size_bytes) {
    if (size_bytes - 1 >= PYMALLOC_MAX_BYTES)
        return other_malloc(context, size_bytes);
    void *block = pymalloc.malloc(pymalloc.context, size_bytes);
    if (exact_quick_given((uint64_t)(uintptr_t)block, size_bytes, current_state(), EXACT_FRAMES_OBJECTS))
        return block;
    return count_small(block, size_bytes);
}

/* From 3.11 on. */
static void *quick_malloc(void *context, size_t size_bytes) {
    if (size_bytes - 1 >= PYMALLOC_MAX_BYTES)
        return other_malloc(context, size_bytes);
    void *block = pymalloc.malloc(pymalloc.context, size_bytes);
    if (exact_quick_given((uint64_t)(uintptr_t)block, size_bytes, current_state(), EXACT_FRAMES_LINKED))
        return block;
    return count_small(block, size_bytes);
}

/* The same, where the state is known to be in a variable of the thread's, so that nothing is called, and frames are as
 * they are in all versions so far from 3.13 on. */
static void *quickest_malloc(void *context, size_t size_bytes) {
    if (size_bytes - 1 >= PYMALLOC_MAX_BYTES)
        return other_malloc(context, size_bytes);
    void *block = pymalloc.malloc(pymalloc.context, size_bytes);
    if (exact_quick_given((uint64_t)(uintptr_t)block, size_bytes, thread_word(state_offset), EXACT_FRAMES_USUAL))
        return block;
    return count_small(block, size_bytes);
}

static void exact_free(void *context, void *block) {
    if (exact_quick_back((uint64_t)(uintptr_t)block))
        pymalloc.free(pymalloc.context, block);
    else
        other_free(context, block);
}

/* --- The arenas in which pymalloc has its pools: what is in them is counted object by object. --- */

static void *map_arena(void *context, size_t size_bytes) {
    heap_thread.inside++;
    void *arena = arenas.alloc(context, size_bytes);
    heap_thread.inside--;
    /* ARENA_SIZE, POOL_SIZE: 256 KiB and 4 KiB, or from 3.10 on 64-bit machines 1 MiB and 16 KiB. */
    pool_bytes = size_bytes == 256 << 10 ? 4 << 10 : size_bytes == 1 << 20 ? 16 << 10 : 0;
    return arena;
}

static void unmap_arena(void *context, void *arena, size_t size_bytes) {
    heap_thread.arena_frees++;
    arenas.free(context, arena, size_bytes);
}

static void hook_arenas(void) {
    struct arena_allocator now;
    python.get_arenas(&now);
    if (now.alloc == map_arena)
        return;
    arenas = now;
    now.alloc = map_arena;
    now.free = unmap_arena;
    python.set_arenas(&now);
}

/* --- Which is which. --- */

static bool same_functions(const struct allocator *left, const struct allocator *right) {
    return left->malloc == right->malloc && left->free == right->free && left->context == right->context;
}

/* What debug hooks have for a context (debug_alloc_api_t: Objects/obmalloc.c 3.8 to 3.11, pycore_pymem_init.h and
 * pycore_pymem.h 3.12 to 3.15), those of the three domains behind each other. */
struct debug_hooks {
    char id;
    struct allocator inner;
};

static struct debug_hooks *find_debug_hooks(const struct allocator now[DOMAINS]) {
    static const char ids[DOMAINS] = {'r', 'm', 'o'};
    struct debug_hooks *first = now[DOMAIN_RAW].context;
    for (int domain = 0; domain < DOMAINS; domain++)
        if (first == NULL || now[domain].context != first + domain)
            return NULL;
    for (int domain = 0; domain < DOMAINS; domain++)
        if (first[domain].id != ids[domain])
            return NULL;
    return first;
}

/* What allocates, and what `debug` stands before, if that is there. The hooks go between the two, so that the
 * interpreter finds its own in front. */
struct current {
    struct allocator now[DOMAINS];
    struct debug_hooks *debug;
};

static void find_current(struct current *current) {
    for (int domain = 0; domain < DOMAINS; domain++)
        python.get(domain, &current->now[domain]);
    current->debug = find_debug_hooks(current->now);
    for (int domain = 0; domain < DOMAINS && current->debug != NULL; domain++)
        current->now[domain] = current->debug[domain].inner;
}

static void put(const struct current *current, int domain, struct allocator functions) {
    if (current->debug != NULL)
        current->debug[domain].inner = functions;
    else
        python.set(domain, &functions);
}

static void hook(const struct current *current, int domain, struct allocator functions) {
    originals[domain] = current->now[domain];
    functions.context = &originals[domain];
    put(current, domain, functions);
}

static void note_pymalloc(const struct allocator *functions) {
    pymalloc = *functions;
    if (python.get_arenas != NULL && python.set_arenas != NULL)
        hook_arenas();
}

static void hook_pymalloc(const struct current *current) {
    const struct allocator hooks = {NULL, pymalloc_malloc, pymalloc_calloc, pymalloc_realloc, pymalloc.free};
    put(current, DOMAIN_MEM, hooks);
    put(current, DOMAIN_OBJECT, hooks);
}

static bool is_hooked(const struct allocator *functions) {
    return functions->malloc == pymalloc_malloc || functions->malloc == label_malloc ||
           functions->malloc == other_malloc || functions->malloc == objects_malloc ||
           functions->malloc == quick_malloc || functions->malloc == quickest_malloc ||
           functions->malloc == mimalloc_malloc;
}

static void *(*small_malloc(void))(void *context, size_t size_bytes) {
    switch (exact_frames_of(&agent_python()->layout)) {
    case EXACT_FRAMES_OBJECTS:
        return objects_malloc;
    case EXACT_FRAMES_USUAL:
        return state_offset != 0 ? quickest_malloc : quick_malloc;
    default:
        return quick_malloc;
    }
}

static void hook_all(void) {
    const struct allocator label = {NULL, label_malloc, label_calloc, label_realloc, label_free};
    const struct allocator other = {NULL, other_malloc, other_calloc, other_realloc, other_free};
    const struct allocator mimalloc = {NULL, mimalloc_malloc, mimalloc_calloc, mimalloc_realloc, mimalloc_free};
    const struct allocator exact = {NULL, small_malloc(), other_calloc, other_realloc, exact_free};
    struct current current;
    find_current(&current);
    const struct allocator *raw = &current.now[DOMAIN_RAW], *memory = &current.now[DOMAIN_MEM],
                           *object = &current.now[DOMAIN_OBJECT];
    if (is_hooked(object))
        return;
    bool from_malloc = same_functions(object, raw);
    /* mimalloc has functions of their own for objects, and what others put there has a context. */
    bool is_pymalloc =
        !python.free_threaded && object->context == NULL && !from_malloc && same_functions(object, memory);
    /* The interpreter's own of 3.13 on. The program has not yet had the time to put others there. */
    bool is_mimalloc = !from_malloc && !is_pymalloc && object->context == NULL && object->malloc != memory->malloc;
    const struct allocator *counting = from_malloc ? &label : is_mimalloc ? &mimalloc : is_pymalloc ? &exact : &other;
    /* Of what CPython puts back meanwhile (_PyMem_SetDefaultAllocator) one may be hooked still. */
    if (!is_hooked(raw))
        hook(&current, DOMAIN_RAW, label);
    if (is_pymalloc)
        note_pymalloc(object);
    if (is_pymalloc && !heap_is_exact) {
        hook_pymalloc(&current);
    } else {
        hook(&current, DOMAIN_MEM, *counting);
        hook(&current, DOMAIN_OBJECT, *counting);
    }
}

void heap_python_install(void) {
    *(void **)&python.get = agent_python_symbol(agent_python(), "PyMem_GetAllocator");
    *(void **)&python.set = agent_python_symbol(agent_python(), "PyMem_SetAllocator");
    *(void **)&python.get_arenas = agent_python_symbol(agent_python(), "PyObject_GetArenaAllocator");
    *(void **)&python.set_arenas = agent_python_symbol(agent_python(), "PyObject_SetArenaAllocator");
    *(void **)&python.is_initialised = agent_python_symbol(agent_python(), "Py_IsInitialized");
    python.free_threaded = agent_python()->layout.free_threaded;
    current_state = agent_python()->current_state;
    if (current_state != NULL && !thread_word_of(current_state, &state_offset))
        state_offset = 0;
    if (heap_on && python.get != NULL && python.set != NULL && python.is_initialised != NULL)
        hook_all();
}

/* The interpreter puts the allocators of PYTHONMALLOC and -X dev in place when it reads its configuration
 * (_PyPreConfig_Write, Python/preconfig.c), and sets the locale right after. */
AGENT_EXPORT char *setlocale(int category, const char *locale) {
    static char *(*next)(int, const char *);
    if (next == NULL)
        *(void **)&next = dlsym(RTLD_NEXT, "setlocale");
    agent_note_caller(__builtin_return_address(0));
    if (heap_on && python.set != NULL && python.is_initialised != NULL && !python.is_initialised())
        hook_all();
    return next(category, locale);
}
