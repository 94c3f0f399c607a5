#include "agent/heap_python.h"

#include "agent/agent.h"
#include "agent/heap.h"

#include <dlfcn.h>
#include <locale.h>
#include <stddef.h>

#define NOT_INLINE __attribute__((noinline))

enum {
    /* PyMemAllocatorDomain (Include/cpython/pymem.h 3.8 to 3.15) */
    DOMAIN_RAW,
    DOMAIN_MEM,
    DOMAIN_OBJECT,
    DOMAINS,
    /* Larger blocks pymalloc gets from malloc (SMALL_REQUEST_THRESHOLD, Objects/obmalloc.c, pycore_obmalloc.h). */
    PYMALLOC_MAX_BYTES = 512,
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
static void *sample_pymalloc(void *(*get)(void *argument), void *argument, size_t size_bytes) {
    struct heap_choice choice;
    if (!heap_choose(size_bytes, &choice))
        return NULL;
    void *block = get_from_malloc(get, argument);
    if (block != NULL && block == heap_thread.nested)
        heap_tell(&(struct heap_block){.address = block, .size_bytes = size_bytes, .grown_bytes = size_bytes}, &choice,
                  WIRE_DOMAIN_PYTHON);
    return block;
}

static bool is_struck(size_t size_bytes) {
    return (heap_thread.left -= (int64_t)size_bytes) < 0;
}

/* What follows is called for every object: what is seldom needed stands apart, so that the rest needs no stack. */
static NOT_INLINE void *pymalloc_sample_malloc(size_t size_bytes) {
    void *block = sample_pymalloc(get_malloc, NULL, size_bytes);
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
    void *block = sample_pymalloc(get_calloc, NULL, count * size_bytes);
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

static void *pymalloc_realloc(void *context, void *block, size_t size_bytes) {
    if (block == NULL)
        return pymalloc_malloc(context, size_bytes);
    void *moved = label_realloc(&pymalloc, block, size_bytes);
    if (moved == NULL || moved == block || size_bytes > PYMALLOC_MAX_BYTES || !is_struck(size_bytes))
        return moved;
    void *sampled = sample_pymalloc(get_realloc, moved, size_bytes);
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
    if (address != NULL && is_struck(size_bytes)) {
        uint32_t domain = enter_domain();
        heap_look(&(struct heap_block){.address = address, .size_bytes = size_bytes, .grown_bytes = size_bytes});
        heap_thread.domain = domain;
    }
    return address;
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

static void other_free(void *context, void *block) {
    const struct allocator *original = context;
    if (sampled_may_hold((uint64_t)(uintptr_t)block))
        heap_give_back(block);
    original->free(original->context, block);
}

static void *other_realloc(void *context, void *block, size_t size_bytes) {
    const struct allocator *original = context;
    if (block == NULL)
        return other_malloc(context, size_bytes);
    struct sampled sampled;
    bool is_sampled = sampled_may_hold((uint64_t)(uintptr_t)block) && heap_take_out(block, &sampled);
    int64_t left = go_inside();
    void *moved = original->realloc(original->context, block, size_bytes);
    come_out(left);
    if (!is_sampled)
        return moved == block ? moved : count_block(moved, size_bytes);
    heap_keep(&sampled, moved != NULL ? moved : block, moved != NULL ? size_bytes : sampled.size_bytes);
    return moved;
}

/* --- The arenas in which pymalloc has its pools: what is in them is counted object by object. --- */

static void *map_arena(void *context, size_t size_bytes) {
    heap_thread.inside++;
    void *arena = arenas.alloc(context, size_bytes);
    heap_thread.inside--;
    return arena;
}

static void hook_arenas(void) {
    struct arena_allocator now;
    python.get_arenas(&now);
    if (now.alloc == map_arena)
        return;
    arenas = now;
    now.alloc = map_arena;
    python.set_arenas(&now);
}

/* --- Which is which. --- */

static bool same_functions(const struct allocator *left, const struct allocator *right) {
    return left->malloc == right->malloc && left->free == right->free && left->context == right->context;
}

static void hook(int domain, struct allocator functions) {
    python.get(domain, &originals[domain]);
    functions.context = &originals[domain];
    python.set(domain, &functions);
}

static void hook_all(void) {
    const struct allocator label = {NULL, label_malloc, label_calloc, label_realloc, label_free};
    const struct allocator other = {NULL, other_malloc, other_calloc, other_realloc, other_free};
    struct allocator now[DOMAINS];
    for (int domain = 0; domain < DOMAINS; domain++)
        python.get(domain, &now[domain]);
    if (now[DOMAIN_OBJECT].malloc == pymalloc_malloc || now[DOMAIN_OBJECT].malloc == label_malloc ||
        now[DOMAIN_OBJECT].malloc == other_malloc)
        return;
    bool from_malloc = same_functions(&now[DOMAIN_OBJECT], &now[DOMAIN_RAW]);
    /* mimalloc has functions of their own for objects, and debug hooks have a context. */
    bool is_pymalloc = !python.free_threaded && now[DOMAIN_OBJECT].context == NULL && !from_malloc &&
                       same_functions(&now[DOMAIN_OBJECT], &now[DOMAIN_MEM]);
    hook(DOMAIN_RAW, label);
    if (is_pymalloc) {
        pymalloc = now[DOMAIN_OBJECT];
        struct allocator hooks = {NULL, pymalloc_malloc, pymalloc_calloc, pymalloc_realloc, pymalloc.free};
        python.set(DOMAIN_MEM, &hooks);
        python.set(DOMAIN_OBJECT, &hooks);
        if (python.get_arenas != NULL && python.set_arenas != NULL)
            hook_arenas();
    } else {
        hook(DOMAIN_MEM, from_malloc ? label : other);
        hook(DOMAIN_OBJECT, from_malloc ? label : other);
    }
}

void heap_python_install(void) {
    *(void **)&python.get = dlsym(RTLD_DEFAULT, "PyMem_GetAllocator");
    *(void **)&python.set = dlsym(RTLD_DEFAULT, "PyMem_SetAllocator");
    *(void **)&python.get_arenas = dlsym(RTLD_DEFAULT, "PyObject_GetArenaAllocator");
    *(void **)&python.set_arenas = dlsym(RTLD_DEFAULT, "PyObject_SetArenaAllocator");
    *(void **)&python.is_initialised = dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    python.free_threaded = agent_python()->layout.free_threaded;
    if (heap_on && python.get != NULL && python.set != NULL && python.is_initialised != NULL)
        hook_all();
}

/* The interpreter puts the allocators of PYTHONMALLOC and -X dev in place when it reads its configuration
 * (_PyPreConfig_Write, Python/preconfig.c), and sets the locale right after. */
AGENT_EXPORT char *setlocale(int category, const char *locale) {
    static char *(*next)(int, const char *);
    if (next == NULL)
        *(void **)&next = dlsym(RTLD_NEXT, "setlocale");
    if (heap_on && python.set != NULL && python.is_initialised != NULL && !python.is_initialised())
        hook_all();
    return next(category, locale);
}
