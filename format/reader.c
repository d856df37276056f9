/* Opens a .llmq: maps it, and believes nothing in it.
 *
 * Order of trust: the header's own CRC, then the file's real size, then the directory's CRC, and only then
 * entries, each range of which is compared with the real size before anything is read or allocated for it.
 * What open leaves to llmq_file_verify is the tensors' bytes: reading those would read the whole file. */
#include "format/file.h"

#include "common/ckd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- header and directory ------------------------------------------------------------------- */

static int check_header(const struct llmq_file *f, struct disk_header *h, struct llmq_err *err)
{
    if (f->map.size < sizeof *h)
        return llmq_fail(err, LLMQ_EFORMAT, "%zu bytes, too short for the header of a .llmq, %zu", f->map.size, sizeof *h);
    memcpy(h, f->map.data, sizeof *h);
    if (memcmp(h->magic, DISK_MAGIC, sizeof h->magic) != 0)
        return llmq_fail(err, LLMQ_EFORMAT, "does not begin as a .llmq does; not one, or not completely written");
    if (h->major != DISK_MAJOR)
        return llmq_fail(err, LLMQ_EFORMAT, "format version %u.%u, expected %d.x", h->major, h->minor, DISK_MAJOR);
    if (section_crc(0, h, offsetof(struct disk_header, crc)) != h->crc)
        return llmq_fail(err, LLMQ_EFORMAT, "the header is damaged: its CRC does not match");
    if (h->header_bytes != sizeof *h)
        return llmq_fail(err, LLMQ_EFORMAT, "a header of %u bytes, expected %zu", h->header_bytes, sizeof *h);
    if (h->file_bytes != f->map.size)
        return llmq_fail(err, LLMQ_EFORMAT, "%zu bytes, but the header states %llu: %s", f->map.size,
                         (unsigned long long)h->file_bytes, f->map.size < h->file_bytes ? "cut short" : "bytes were added");
    return 0;
}

static int in_file(const struct llmq_file *f, const char *what, uint64_t offset, uint64_t bytes, uint64_t align,
                   struct llmq_err *err)
{
    uint64_t end;

    if (offset % align)
        return llmq_fail(err, LLMQ_EFORMAT, "%s at offset %llu, expected a multiple of %llu", what,
                         (unsigned long long)offset, (unsigned long long)align);
    if (llmq_ckd_add(&end, offset, bytes) || end > f->map.size)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: %llu bytes at offset %llu reach past the file's %zu", what,
                         (unsigned long long)bytes, (unsigned long long)offset, f->map.size);
    return 0;
}

static int entry_size(const char *what, uint32_t bytes, size_t known, struct llmq_err *err)
{
    if (bytes < known || bytes > DISK_MAX_ENTRY || bytes % 8)
        return llmq_fail(err, LLMQ_EFORMAT, "%s entries of %u bytes, expected %zu or more, a multiple of 8", what, bytes,
                         known);
    return 0;
}

static int check_directory(const struct llmq_file *f, const struct disk_header *h, struct disk_directory *d,
                           struct llmq_err *err)
{
    uint64_t want;

    if (in_file(f, "the directory", h->dir_offset, h->dir_bytes, DISK_ALIGN, err))
        return err->code;
    if (h->dir_offset < DISK_PAGE || h->dir_offset + h->dir_bytes != f->map.size || h->dir_bytes < sizeof *d)
        return llmq_fail(err, LLMQ_EFORMAT, "the directory: %llu bytes at offset %llu, expected the file's last ones",
                         (unsigned long long)h->dir_bytes, (unsigned long long)h->dir_offset);
    if (section_crc(0, f->map.data + h->dir_offset, h->dir_bytes) != h->dir_crc)
        return llmq_fail(err, LLMQ_EFORMAT, "the directory is damaged: its CRC does not match");
    memcpy(d, f->map.data + h->dir_offset, sizeof *d);
    if (entry_size("section", d->section_bytes, sizeof(struct disk_section), err) ||
        entry_size("tensor", d->tensor_bytes, sizeof(struct disk_tensor), err))
        return err->code;
    /* Counts are 32 bits and sizes at most 4096: no sum of products wraps 64. */
    want = sizeof *d + (uint64_t)d->n_sections * d->section_bytes + (uint64_t)d->n_tensors * d->tensor_bytes;
    if (d->n_sections > DISK_MAX_SECTIONS)
        return llmq_fail(err, LLMQ_EFORMAT, "%u sections, at most %d are read", d->n_sections, DISK_MAX_SECTIONS);
    if (want != h->dir_bytes || d->n_tensors > INT32_MAX / 4)
        return llmq_fail(err, LLMQ_EFORMAT, "a directory of %llu bytes, but %u sections and %u tensors take %llu",
                         (unsigned long long)h->dir_bytes, d->n_sections, d->n_tensors, (unsigned long long)want);
    return 0;
}

static int copy_directory(struct llmq_file *f, const struct disk_header *h, const struct disk_directory *d,
                          struct llmq_err *err)
{
    const char *p = f->map.data + h->dir_offset + sizeof *d;

    f->n_sections = (int)d->n_sections;
    f->n_tensors = (int)d->n_tensors;
    if (LLMQ_ARENA_NEW(&f->arena, &f->sections, f->n_sections, "the section table", err) ||
        LLMQ_ARENA_NEW(&f->arena, &f->entries, f->n_tensors, "the directory", err) ||
        LLMQ_ARENA_NEW(&f->arena, &f->tensors, f->n_tensors, "the tensor table", err) ||
        LLMQ_ARENA_NEW(&f->arena, &f->used, 3 * (size_t)f->n_tensors + (size_t)f->n_sections + 2, "the range table", err))
        return err->code;
    for (int i = 0; i < f->n_sections; i++, p += d->section_bytes)
        memcpy(&f->sections[i].disk, p, sizeof f->sections[i].disk);
    for (int i = 0; i < f->n_tensors; i++, p += d->tensor_bytes)
        memcpy(&f->entries[i], p, sizeof f->entries[i]);
    return 0;
}

static void use(struct llmq_file *f, uint64_t offset, uint64_t bytes)
{
    if (bytes)
        f->used[f->n_used++] = (struct file_range){offset, offset + bytes};
}

static int by_offset(const void *a, const void *b)
{
    const struct file_range *x = a, *y = b;

    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int check_overlaps(struct llmq_file *f, struct llmq_err *err)
{
    qsort(f->used, (size_t)f->n_used, sizeof *f->used, by_offset);
    for (int i = 1; i < f->n_used; i++)
        if (f->used[i].begin < f->used[i - 1].end)
            return llmq_fail(err, LLMQ_EFORMAT, "bytes at offset %llu belong to two things",
                             (unsigned long long)f->used[i].begin);
    return 0;
}

/* ---- sections ------------------------------------------------------------------------------- */

static int check_section_name(const struct disk_section *d, struct llmq_err *err)
{
    size_t len = strnlen(d->name, sizeof d->name);

    if (len == 0 || len == sizeof d->name)
        return llmq_fail(err, LLMQ_EFORMAT, "section %u: its name is empty or has no end", d->id);
    for (size_t i = 0; i < len; i++)
        if (d->name[i] < 0x20 || d->name[i] > 0x7e)
            return llmq_fail(err, LLMQ_EFORMAT, "section %u: byte %zu of its name is not printable ASCII", d->id, i);
    return 0;
}

static int check_section(const struct llmq_file *f, int i, struct llmq_err *err)
{
    const struct disk_section *d = &f->sections[i].disk;

    if (!d->id)
        return llmq_fail(err, LLMQ_EFORMAT, "its id is 0");
    if (d->flags & ~(uint32_t)(DISK_SECTION_REQUIRED | DISK_SECTION_DEFLATED))
        return llmq_fail(err, LLMQ_EFORMAT, "flags 0x%x, of which some are not known", d->flags);
    if ((d->flags & DISK_SECTION_REQUIRED) && (d->id > INT32_MAX || !llmq_section_name((int)d->id)))
        return llmq_fail(err, LLMQ_EFORMAT, "is required, and this program does not know it");
    if (in_file(f, "its bytes", d->offset, d->stored_bytes, DISK_ALIGN, err))
        return err->code;
    if (!(d->flags & DISK_SECTION_DEFLATED) && d->bytes != d->stored_bytes)
        return llmq_fail(err, LLMQ_EFORMAT, "%llu bytes stand for %llu, and it is not deflated",
                         (unsigned long long)d->stored_bytes, (unsigned long long)d->bytes);
    if (d->bytes / DISK_MAX_RATIO + (d->bytes % DISK_MAX_RATIO != 0) > d->stored_bytes)
        return llmq_fail(err, LLMQ_EFORMAT, "%llu bytes cannot inflate to %llu", (unsigned long long)d->stored_bytes,
                         (unsigned long long)d->bytes);
    for (int j = 0; j < i; j++)
        if (f->sections[j].disk.id == d->id)
            return llmq_fail(err, LLMQ_EFORMAT, "stands there twice");
    return 0;
}

static int load_section(struct llmq_file *f, struct file_section *s, struct llmq_err *err)
{
    const struct disk_section *d = &s->disk;
    const char                *stored = f->map.data + d->offset;

    if (section_crc(0, stored, d->stored_bytes) != d->stored_crc)
        return llmq_fail(err, LLMQ_EFORMAT, "is damaged: its CRC does not match");
    if (d->id > INT32_MAX || !llmq_section_name((int)d->id))
        return 0; /* of a later minor version: not for us */
    if (LLMQ_ARENA_NEW(&f->arena, &s->text, d->bytes + 1, "a section", err))
        return err->code;
    if (!(d->flags & DISK_SECTION_DEFLATED))
        memcpy(s->text, stored, d->bytes);
    else if (section_inflate(s->text, d->bytes, stored, d->stored_bytes, err))
        return err->code;
    if (section_crc(0, s->text, d->bytes) != d->crc)
        return llmq_fail(err, LLMQ_EFORMAT, "is damaged: the CRC of its inflated bytes does not match");
    return 0;
}

/* Overlaps are looked for before anything is inflated: many sections over the same bytes would otherwise
 * multiply what those bytes may allocate. */
static int load_sections(struct llmq_file *f, struct llmq_err *err)
{
    for (int i = 0; i < f->n_sections; i++) {
        const struct disk_section *d = &f->sections[i].disk;

        if (check_section_name(d, err))
            return err->code;
        if (check_section(f, i, err))
            return llmq_fail_within(err, "section %u '%s'", d->id, d->name);
        use(f, d->offset, d->stored_bytes);
    }
    if (check_overlaps(f, err))
        return err->code;
    for (int i = 0; i < f->n_sections; i++)
        if (load_section(f, &f->sections[i], err))
            return llmq_fail_within(err, "section %u '%s'", f->sections[i].disk.id, f->sections[i].disk.name);
    return 0;
}

static int load_hparams(struct llmq_file *f, struct llmq_err *err)
{
    struct llmq_hparams *h = &f->hparams;
    struct disk_hparams  d;
    size_t               len;
    const char          *bytes = llmq_file_section(f, LLMQ_SECTION_HPARAMS, &len);

    if (len < sizeof d)
        return llmq_fail(err, LLMQ_EFORMAT, "section 'hparams': %zu bytes, expected %zu", len, sizeof d);
    memcpy(&d, bytes, sizeof d);
    h->arch = d.arch;
    h->n_layers = d.n_layers;
    h->d_model = d.d_model;
    h->n_heads = d.n_heads;
    h->n_kv_heads = d.n_kv_heads;
    h->head_dim = d.head_dim;
    h->d_ff = d.d_ff;
    h->n_vocab = d.n_vocab;
    h->ctx_len = d.ctx_len;
    h->tied = d.tied;
    h->attn_bias = d.attn_bias;
    h->mlp_bias = d.mlp_bias;
    h->rope_type = d.rope_type;
    h->rope_orig_ctx = d.rope_orig_ctx;
    h->rope_theta = d.rope_theta;
    h->rms_eps = d.rms_eps;
    h->rope_factor = d.rope_factor;
    h->rope_low = d.rope_low;
    h->rope_high = d.rope_high;
    h->rope_attn_factor = d.rope_attn_factor;
    h->bos_id = d.bos_id;
    h->n_eos = d.n_eos;
    memcpy(h->eos_id, d.eos_id, sizeof h->eos_id);
    return llmq_hparams_check(h, "hparams", err);
}

/* ---- tensors -------------------------------------------------------------------------------- */

void file_label(const struct llmq_tensor *t, char *out, size_t size)
{
    const char *name = llmq_role_name(t->role);
    char        number[16];

    snprintf(number, sizeof number, "role %u", t->role);
    if (t->layer == LLMQ_NO_LAYER)
        snprintf(out, size, "%s", name ? name : number);
    else
        snprintf(out, size, "layer %u %s", t->layer, name ? name : number);
}

static void copy_entry(struct llmq_tensor *t, const struct disk_tensor *d)
{
    t->role = d->role;
    t->layer = d->layer;
    t->expert = d->expert;
    t->layout = d->layout;
    t->scheme.kind = d->kind;
    t->scheme.dtype = d->dtype;
    t->scheme.bits = d->bits;
    t->scheme.symmetric = d->symmetric;
    t->scheme.scale_dtype = d->scale_dtype;
    t->scheme.act = d->act;
    t->scheme.group = d->group;
    t->n = d->n;
    t->k = d->k;
    t->rel_err = d->rel_err;
    t->name = "";
}

static int check_place(const struct llmq_file *f, const struct llmq_tensor *t, struct llmq_err *err)
{
    int per_layer = llmq_role_per_layer(t->role);

    if (!llmq_role_name(t->role))
        return llmq_fail(err, LLMQ_EFORMAT, "role %u is not known", t->role);
    if (t->expert != LLMQ_NO_EXPERT)
        return llmq_fail(err, LLMQ_EFORMAT, "expert %u, expected %d (none)", t->expert, LLMQ_NO_EXPERT);
    if (per_layer && t->layer >= f->hparams.n_layers)
        return llmq_fail(err, LLMQ_EFORMAT, "layer %u, but the model has %u", t->layer, f->hparams.n_layers);
    if (!per_layer && t->layer != LLMQ_NO_LAYER)
        return llmq_fail(err, LLMQ_EFORMAT, "layer %u, expected %d (none)", t->layer, LLMQ_NO_LAYER);
    return 0;
}

static int check_shape(const struct llmq_file *f, struct llmq_tensor *t, struct llmq_err *err)
{
    uint32_t n = 0, k = 0;

    llmq_role_shape(&f->hparams, t->role, &n, &k);
    if (t->n != n || t->k != k)
        return llmq_fail(err, LLMQ_EFORMAT, "%u x %u, but the hyperparameters make it %u x %u", t->n, t->k, n, k);
    if (!(t->rel_err == -1.0f || (t->rel_err >= 0 && t->rel_err < 1e30f)))
        return llmq_fail(err, LLMQ_EFORMAT, "its relative error is %g, expected -1 or 0 and more", (double)t->rel_err);
    return llmq_tensor_sizes(t, err);
}

static int place_part(struct llmq_file *f, const struct disk_tensor *d, int part, uint64_t want, const void **out,
                      struct llmq_err *err)
{
    static const char *const name[] = {"data", "scales", "zero points"};
    static const uint64_t    align[] = {DISK_ALIGN, DISK_SCALE_ALIGN, DISK_ZERO_ALIGN};
    const struct disk_part  *p = &d->part[part];

    if (p->bytes != want)
        return llmq_fail(err, LLMQ_EFORMAT, "%llu bytes of %s, expected %llu", (unsigned long long)p->bytes, name[part],
                         (unsigned long long)want);
    *out = NULL;
    if (!want)
        return p->offset || d->crc[part] ? llmq_fail(err, LLMQ_EFORMAT, "has no %s, yet their place", name[part]) : 0;
    if (in_file(f, name[part], p->offset, want, align[part], err))
        return err->code;
    *out = f->map.data + p->offset;
    use(f, p->offset, want);
    return 0;
}

/* Tensors stand in order of use: by layer, each layer in one piece that begins on a page. */
static int check_order(const struct llmq_file *f, int i, struct llmq_err *err)
{
    const struct llmq_tensor *t = &f->tensors[i];
    uint64_t                  at = f->entries[i].part[0].offset;
    int                       begins = t->layer != LLMQ_NO_LAYER && (i == 0 || t[-1].layer != t->layer);

    if (i > 0 && at < f->entries[i - 1].part[0].offset)
        return llmq_fail(err, LLMQ_EFORMAT, "its data stands before that of the entry before it");
    if (begins && at % DISK_PAGE)
        return llmq_fail(err, LLMQ_EFORMAT, "the layer begins at offset %llu, expected a multiple of %d",
                         (unsigned long long)at, DISK_PAGE);
    if (begins && f->layers[t->layer].end)
        return llmq_fail(err, LLMQ_EFORMAT, "the layer's tensors do not stand together");
    return 0;
}

static void grow_layer(struct llmq_file *f, int i)
{
    struct file_range *r = &f->layers[f->tensors[i].layer];

    if (!r->end)
        r->begin = f->entries[i].part[0].offset;
    for (int p = 0; p < 3; p++) {
        uint64_t end = f->entries[i].part[p].offset + f->entries[i].part[p].bytes;
        r->end = end > r->end ? end : r->end;
    }
}

static int32_t *index_of(const struct llmq_file *f, int role, int layer)
{
    uint32_t row = layer == LLMQ_NO_LAYER ? f->hparams.n_layers : (uint32_t)layer;

    return &f->index[(size_t)row * FILE_MAX_ROLE + (size_t)role];
}

static int load_tensor(struct llmq_file *f, int i, struct llmq_err *err)
{
    const struct disk_tensor *d = &f->entries[i];
    struct llmq_tensor       *t = &f->tensors[i];
    int32_t                  *slot;

    copy_entry(t, d);
    if (check_place(f, t, err) || check_shape(f, t, err) || place_part(f, d, 0, t->data_bytes, &t->data, err) ||
        place_part(f, d, 1, t->scale_bytes, &t->scales, err) || place_part(f, d, 2, t->zero_bytes, &t->zeros, err) ||
        check_order(f, i, err))
        return err->code;
    slot = index_of(f, t->role, t->layer);
    if (*slot >= 0)
        return llmq_fail(err, LLMQ_EFORMAT, "stands there twice: entry %d is the same tensor", *slot);
    *slot = i;
    if (t->layer != LLMQ_NO_LAYER)
        grow_layer(f, i);
    return 0;
}

/* Each expected tensor is there; with the counts equal there is none beyond them. */
static int check_complete(const struct llmq_file *f, struct llmq_err *err)
{
    const struct llmq_hparams *h = &f->hparams;
    struct llmq_tensor         want = {.layer = LLMQ_NO_LAYER};
    uint64_t                   expected = 0;
    char                       label[64];

    for (uint32_t l = 0; l <= h->n_layers; l++) {
        int roles[24], n = llmq_role_list(h, l < h->n_layers, roles);

        want.layer = (uint16_t)(l < h->n_layers ? l : LLMQ_NO_LAYER);
        for (int i = 0; i < n; i++) {
            want.role = (uint16_t)roles[i];
            file_label(&want, label, sizeof label);
            if (*index_of(f, roles[i], want.layer) < 0)
                return llmq_fail(err, LLMQ_EFORMAT, "there is no tensor %s", label);
        }
        expected += (uint64_t)n;
    }
    if (expected != (uint64_t)f->n_tensors)
        return llmq_fail(err, LLMQ_EFORMAT, "%d tensors, but the hyperparameters make it %llu", f->n_tensors,
                         (unsigned long long)expected);
    return 0;
}

static int load_tensors(struct llmq_file *f, struct llmq_err *err)
{
    size_t rows = (size_t)f->hparams.n_layers + 1;
    char   label[64];

    if (f->hparams.n_layers > (uint32_t)f->n_tensors) /* before tables of that size are made */
        return llmq_fail(err, LLMQ_EFORMAT, "%d tensors are too few for %u layers", f->n_tensors, f->hparams.n_layers);
    if (LLMQ_ARENA_NEW(&f->arena, &f->index, rows * FILE_MAX_ROLE, "the tensor index", err) ||
        LLMQ_ARENA_NEW(&f->arena, &f->layers, rows, "the layer table", err))
        return err->code;
    memset(f->index, 0xff, rows * FILE_MAX_ROLE * sizeof *f->index);
    for (int i = 0; i < f->n_tensors; i++)
        if (load_tensor(f, i, err)) {
            file_label(&f->tensors[i], label, sizeof label);
            return llmq_fail_within(err, "tensor %d (%s)", i, label);
        }
    return check_complete(f, err);
}

static int check_name(const char *name, size_t len, int i, struct llmq_err *err)
{
    for (size_t j = 0; j < len; j++)
        if (name[j] < 0x20 || name[j] > 0x7e)
            return llmq_fail(err, LLMQ_EFORMAT, "section 'names': name %d is not printable ASCII", i);
    return 0;
}

static int load_names(struct llmq_file *f, struct llmq_err *err)
{
    size_t      left;
    const char *p = llmq_file_section(f, LLMQ_SECTION_NAMES, &left);
    int         n = 0;

    if (!left)
        return 0;
    for (; left && n < f->n_tensors; n++) {
        size_t len = strnlen(p, left);

        if (len == left)
            return llmq_fail(err, LLMQ_EFORMAT, "section 'names': name %d has no end", n);
        if (check_name(p, len, n, err))
            return err->code;
        f->tensors[n].name = p;
        p += len + 1;
        left -= len + 1;
    }
    if (left || n < f->n_tensors)
        return llmq_fail(err, LLMQ_EFORMAT, "section 'names': %s than the %d tensors", left ? "more names" : "fewer names",
                         f->n_tensors);
    return 0;
}

/* ---- the public face ------------------------------------------------------------------------ */

static int load(struct llmq_file *f, struct llmq_err *err)
{
    struct disk_header    h = {0};
    struct disk_directory d = {0};

    if (check_header(f, &h, err) || check_directory(f, &h, &d, err) || copy_directory(f, &h, &d, err))
        return err->code;
    f->major = h.major;
    f->minor = h.minor;
    use(f, 0, sizeof h);
    use(f, h.dir_offset, h.dir_bytes);
    if (load_sections(f, err) || load_hparams(f, err) || load_tensors(f, err) || load_names(f, err))
        return err->code;
    return check_overlaps(f, err);
}

int llmq_file_open(struct llmq_file **out, const char *path, struct llmq_err *err)
{
    struct llmq_file *f;

    *out = NULL;
    if (LLMQ_NEW(&f, 1, "a file", err))
        return err->code;
    f->path = llmq_arena_str(&f->arena, path, strlen(path), err);
    if (!f->path || llmq_map_open(&f->map, path, err)) {
        llmq_file_close(f);
        return err->code;
    }
    if (load(f, err)) {
        llmq_fail_within(err, "%s", path);
        llmq_file_close(f);
        return err->code;
    }
    *out = f;
    return 0;
}

void llmq_file_close(struct llmq_file *f)
{
    if (!f)
        return;
    llmq_map_close(&f->map);
    llmq_arena_free(&f->arena);
    llmq_free(f);
}

const char *llmq_file_path(const struct llmq_file *f) { return f->path; }

uint64_t llmq_file_size(const struct llmq_file *f) { return f->map.size; }

const struct llmq_hparams *llmq_file_hparams(const struct llmq_file *f) { return &f->hparams; }

int llmq_file_tensor_count(const struct llmq_file *f) { return f->n_tensors; }

const struct llmq_tensor *llmq_file_tensor(const struct llmq_file *f, int index) { return &f->tensors[index]; }

const struct llmq_tensor *llmq_file_find(const struct llmq_file *f, int role, int layer, int expert)
{
    int32_t i;

    if (role < 0 || role >= FILE_MAX_ROLE || layer < 0 || expert != LLMQ_NO_EXPERT ||
        (layer != LLMQ_NO_LAYER && (uint32_t)layer >= f->hparams.n_layers))
        return NULL;
    i = *index_of(f, role, layer);
    return i < 0 ? NULL : &f->tensors[i];
}

const char *llmq_file_section(const struct llmq_file *f, int id, size_t *len)
{
    for (int i = 0; i < f->n_sections; i++)
        if (f->sections[i].disk.id == (uint32_t)id && f->sections[i].text) {
            *len = f->sections[i].disk.bytes;
            return f->sections[i].text;
        }
    *len = 0;
    return "";
}

double llmq_file_bits_per_weight(const struct llmq_file *f)
{
    double bits = 0, weights = 0;

    for (int i = 0; i < f->n_tensors; i++) {
        const struct llmq_tensor *t = &f->tensors[i];

        if (t->k == 1)
            continue;
        bits += 8.0 * (double)(t->data_bytes + t->scale_bytes + t->zero_bytes);
        weights += (double)t->n * t->k;
    }
    return weights > 0 ? bits / weights : 0;
}

/* A layer begins on a page, and a writer puts nothing else on its last one, so whole pages are its own.  A file that
 * does otherwise loses nothing but speed: pages that were dropped are read again. */
static int layer_bytes(const struct llmq_file *f, int layer, size_t *offset, size_t *len)
{
    const struct file_range *r;

    if (layer < 0 || (uint32_t)layer >= f->hparams.n_layers)
        return 0;
    r = &f->layers[layer];
    *offset = r->begin;
    *len = ((r->end + DISK_PAGE - 1) & ~(uint64_t)(DISK_PAGE - 1)) - r->begin;
    return 1;
}

void llmq_file_want_layer(const struct llmq_file *f, int layer)
{
    size_t offset, len;

    if (layer_bytes(f, layer, &offset, &len))
        llmq_map_want(&f->map, offset, len);
}

void llmq_file_drop_layer(const struct llmq_file *f, int layer)
{
    size_t offset, len;

    if (layer_bytes(f, layer, &offset, &len))
        llmq_map_drop(&f->map, offset, len);
}
