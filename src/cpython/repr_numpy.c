/* NumPy's scalars and arrays. NumPy describes nothing of itself; its structs are part of its C interface and have stood
 * still since 1.7, but for PyArray_Descr, which changed in 2.0. A value stands directly behind the object's header
 * (numpy/arrayscalars.h). */
#include "cpython/repr_parts.h"

#include "base/bytes.h"
#include "cpython/copy.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    POINTER_BYTES = 8,
    MAX_DIMENSIONS = 64, /* NPY_MAXDIMS since 2.0; 32 before */
    MAX_VALUE_BYTES = 16,
    DTYPE_TEXT_BYTES = 160,
    /* PyArrayObject_fields behind the header (numpy/ndarraytypes.h): data, nd, dimensions, strides, base, descr. */
    ARRAY_ND = 8,
    ARRAY_DIMENSIONS = 16,
    ARRAY_DESCR = 40,
    /* PyArray_Descr behind the header: typeobj, kind, type, byteorder, flags, type_num; then int elsize and int
     * alignment before 2.0, since then flags and elsize of 8 bytes each. */
    DESCR_TYPEOBJ = 0,
    DESCR_KIND = 8,
    DESCR_BYTEORDER = 10,
    DESCR_ELSIZE_OLD = 16,
    DESCR_FLAGS_NEW = 16,
    DESCR_ELSIZE_NEW = 24,
};

/* From the ten lower bits; subnormal when the exponent is 0. */
static double half_value(uint16_t bits) {
    int exponent = bits >> 10 & 0x1f;
    int fraction = bits & 0x3ff;
    double size = 0;
    if (exponent == 0x1f)
        size = fraction != 0 ? NAN : INFINITY;
    else if (exponent == 0)
        size = ldexp(fraction, -24);
    else
        size = ldexp(fraction + 0x400, exponent - 25);
    return bits >> 15 != 0 ? -size : size;
}

static double real_value(const uint8_t *bytes, enum repr_precision precision) {
    double wide = 0;
    float single = 0;
    if (precision == REPR_HALF)
        return half_value(load_u16(bytes));
    memcpy(&wide, bytes, sizeof wide);
    memcpy(&single, bytes, sizeof single);
    return precision == REPR_SINGLE ? (double)single : wide;
}

/* Bits of one real part. */
static enum repr_precision precision_of(unsigned bits) {
    return bits == 16 ? REPR_HALF : bits == 32 ? REPR_SINGLE : REPR_DOUBLE;
}

static enum status put_integer(struct repr *repr, const char *name, const uint8_t *bytes, unsigned bits,
                               bool is_signed) {
    uint64_t value = load_u64(bytes) << (64 - bits);
    if (is_signed)
        return repr_put_format(repr, "np.%s(%" PRId64 ")", name, (int64_t)value >> (64 - bits));
    return repr_put_format(repr, "np.%s(%" PRIu64 ")", name, value >> (64 - bits));
}

static enum status put_real(struct repr *repr, const char *name, const uint8_t *bytes, unsigned bits) {
    char text[REPR_NUMBER_BYTES];
    enum repr_precision precision = precision_of(bits);
    repr_format_real(real_value(bytes, precision), precision, true, text);
    return repr_put_format(repr, "np.%s(%s)", name, text);
}

static enum status put_complex(struct repr *repr, const char *name, const uint8_t *bytes, unsigned bits) {
    char text[2 * REPR_NUMBER_BYTES];
    bool both = false;
    enum repr_precision precision = precision_of(bits / 2);
    repr_format_complex(real_value(bytes, precision), real_value(bytes + bits / 16, precision), precision, &both, text);
    return repr_put_format(repr, "np.%s(%s)", name, text);
}

/* Scalars are named by what they are and how many bits they have, save for a few. */
struct scalar {
    char kind; /* i, u, f, c, b */
    unsigned bits;
};

static bool parse_scalar(const char *name, struct scalar *scalar) {
    static const struct {
        const char *name;
        char kind;
        unsigned bits;
        unsigned least_bits;
        unsigned most_bits;
    } families[] = {
        {"int", 'i', 0, 8, 64},       {"uint", 'u', 0, 8, 64},       {"float", 'f', 0, 16, 64},
        {"complex", 'c', 0, 64, 128}, {"longlong", 'i', 64, 64, 64}, {"ulonglong", 'u', 64, 64, 64},
        {"bool", 'b', 8, 8, 8},       {"bool_", 'b', 8, 8, 8},
    };
    size_t stem = strcspn(name, "0123456789");
    unsigned bits = (unsigned)strtoul(name + stem, NULL, 10);
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (strlen(families[i].name) != stem || memcmp(families[i].name, name, stem) != 0)
            continue;
        *scalar = (struct scalar){.kind = families[i].kind, .bits = families[i].bits != 0 ? families[i].bits : bits};
        return scalar->bits >= families[i].least_bits && scalar->bits <= families[i].most_bits &&
               (scalar->bits & (scalar->bits - 1)) == 0;
    }
    return false;
}

static enum status show_wrapped(struct repr *repr, remote_addr object, const struct type_info *type,
                                repr_show_fn *show) {
    TRY(repr_put_format(repr, "np.%s(", type_name(type)));
    TRY(show(repr, object, type));
    return repr_put(repr, ")");
}

enum status repr_show_numpy_scalar(struct repr *repr, remote_addr object, const struct type_info *type) {
    uint8_t bytes[MAX_VALUE_BYTES] = {0};
    struct scalar scalar;
    const char *name = type_name(type);
    if ((type->flags & TYPE_IS_STR) != 0)
        return show_wrapped(repr, object, type, repr_show_str);
    if ((type->flags & TYPE_IS_BYTES) != 0)
        return show_wrapped(repr, object, type, repr_show_bytes);
    if (strcmp(name, "datetime64") == 0 || strcmp(name, "timedelta64") == 0)
        return repr_show_numpy_time(repr, object, type);
    if (!parse_scalar(name, &scalar))
        return STATUS_NOT_FOUND;
    TRY(memory_read(repr->runtime->objects, object + repr->runtime->layout.object.size, bytes, scalar.bits / 8));
    if (scalar.kind == 'b')
        return repr_put(repr, bytes[0] != 0 ? "np.True_" : "np.False_");
    if (scalar.kind == 'f')
        return put_real(repr, name, bytes, scalar.bits);
    if (scalar.kind == 'c')
        return put_complex(repr, name, bytes, scalar.bits);
    return put_integer(repr, name, bytes, scalar.bits, scalar.kind == 'i');
}

/* Without what tells bool_ and object_ from Python's. */
static enum status put_dtype_name(struct repr *repr, const char *name) {
    size_t length = strlen(name);
    return repr_put_bytes(repr, name, length > 0 && name[length - 1] == '_' ? length - 1 : length);
}

static enum status put_dtype(struct repr *repr, remote_addr descr) {
    const layout_offset head = repr->runtime->layout.object.size;
    struct copy copy;
    struct type_info scalar;
    TRY(copy_read(repr->runtime->objects, descr, head + DESCR_ELSIZE_NEW, &copy));
    TRY(type_read_at(repr->runtime, copy_u64(&copy, head + DESCR_TYPEOBJ), &scalar));
    char kind = (char)copy_u8(&copy, head + DESCR_KIND);
    char order = (char)copy_u8(&copy, head + DESCR_BYTEORDER);
    /* An alignment is at least 1, and no flag of 2.x has come near 2**32. */
    bool old = copy_u64(&copy, head + DESCR_FLAGS_NEW) >> 32 != 0;
    uint64_t element_bytes = old ? copy_u32(&copy, head + DESCR_ELSIZE_OLD) : copy_u64(&copy, head + DESCR_ELSIZE_NEW);
    if (kind == 'U')
        return repr_put_format(repr, "%sU%" PRIu64, order == '>' ? ">" : "<", element_bytes / 4);
    if (kind == 'S' || kind == 'V')
        return repr_put_format(repr, "%c%" PRIu64, kind, element_bytes);
    if (order == '>' && strchr("iufcMm", kind) != NULL)
        TRY(repr_put_format(repr, ">%c%" PRIu64, kind, element_bytes));
    else
        TRY(put_dtype_name(repr, type_name(&scalar)));
    return kind == 'M' || kind == 'm' ? repr_put_numpy_unit(repr, descr, old) : STATUS_OK;
}

enum status repr_show_numpy_array(struct repr *repr, remote_addr object, const struct type_info *type) {
    const layout_offset head = repr->runtime->layout.object.size;
    struct copy copy;
    uint8_t dimensions[MAX_DIMENSIONS * POINTER_BYTES];
    bool first = true;
    TRY(copy_read(repr->runtime->objects, object, head + ARRAY_DESCR, &copy));
    uint32_t count = copy_u32(&copy, head + ARRAY_ND);
    if (count > MAX_DIMENSIONS)
        return STATUS_TORN;
    if (count > 0)
        TRY(memory_read(repr->runtime->objects, copy_u64(&copy, head + ARRAY_DIMENSIONS), dimensions,
                        (size_t)count * POINTER_BYTES));
    bool plain = strcmp(type->full_name, "numpy.ndarray") == 0;
    TRY(repr_put_format(repr, "%s(shape=(", plain ? "array" : type_name(type)));
    for (uint32_t i = 0; i < count; i++) {
        TRY(repr_put_comma(repr, &first));
        TRY(repr_put_format(repr, "%" PRId64, (int64_t)load_u64(dimensions + (size_t)i * POINTER_BYTES)));
    }
    TRY(repr_put(repr, count == 1 ? ",), dtype=" : "), dtype="));
    TRY(put_dtype(repr, copy_u64(&copy, head + ARRAY_DESCR)));
    return repr_put(repr, ")");
}

enum status repr_show_numpy_dtype(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)type;
    TRY(repr_put(repr, "dtype('"));
    TRY(put_dtype(repr, object));
    return repr_put(repr, "')");
}
