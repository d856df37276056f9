/* Writes a .llmq front to back: header page (zeros until the end), tensors as they come, sections by id,
 * directory; then the header over the zeros.  A file that was cut anywhere has no magic, or a size that is
 * not its own.
 *
 * A runner takes q, k and v (gate and up) as one matrix, so their data stand back to back, then all their
 * scales, then all their zero points: those two are kept here until the last of the matrices is written. */
#include "format/file.h"

#include "common/str.h"

#include <string.h>

enum { PART_DATA, PART_SCALES, PART_ZEROS, N_PARTS };

struct writer_section {
    struct disk_section disk;
    struct llmq_str     stored;
};

struct llmq_writer {
    struct llmq_out       out;
    struct llmq_hparams   hparams;
    struct disk_tensor   *entries;
    size_t                n_entries, cap_entries;
    struct llmq_str       names;
    struct llmq_str       kept[N_PARTS]; /* scales and zero points of entries[first_kept ..] */
    size_t                first_kept;
    uint64_t              left[N_PARTS]; /* bytes of the current tensor still to come */
    struct writer_section sections[16];  /* by id; stored.max == 0: none */
    int                   closed;
};

enum { MAX_SECTION_ID = 15 };
static const uint64_t max_kept = 4ull << 30, max_names = 256ull << 20, max_section = 1ull << 30;

int llmq_writer_open(struct llmq_writer **out, const char *path, const struct llmq_hparams *h, struct llmq_err *err)
{
    static const char   zeros[DISK_PAGE];
    struct llmq_writer *w;

    *out = NULL;
    if (llmq_hparams_check(h, path, err) || LLMQ_NEW(&w, 1, "a writer", err))
        return err->code;
    w->hparams = *h;
    llmq_str_init(&w->names, max_names);
    for (int i = 0; i < N_PARTS; i++)
        llmq_str_init(&w->kept[i], max_kept);
    for (int i = 0; i <= MAX_SECTION_ID; i++)
        llmq_str_init(&w->sections[i].stored, 0);
    if (llmq_out_open(&w->out, path, err) || llmq_out_write(&w->out, zeros, sizeof zeros, err)) {
        llmq_writer_abort(w);
        return err->code;
    }
    *out = w;
    return 0;
}

void llmq_writer_abort(struct llmq_writer *w)
{
    if (!w)
        return;
    llmq_out_abort(&w->out);
    llmq_free(w->entries);
    llmq_str_fini(&w->names);
    for (int i = 0; i < N_PARTS; i++)
        llmq_str_fini(&w->kept[i]);
    for (int i = 0; i <= MAX_SECTION_ID; i++)
        llmq_str_fini(&w->sections[i].stored);
    llmq_free(w);
}

/* ---- tensors -------------------------------------------------------------------------------- */

static int fail_in(const struct disk_tensor *d, struct llmq_err *err)
{
    struct llmq_tensor t = {.role = d->role, .layer = d->layer};
    char               label[64];

    file_label(&t, label, sizeof label);
    return llmq_fail_within(err, "%s", label);
}

static int check_whole(const struct llmq_writer *w, struct llmq_err *err)
{
    uint64_t left = w->left[PART_DATA] + w->left[PART_SCALES] + w->left[PART_ZEROS];

    if (!left || !w->n_entries)
        return 0;
    llmq_fail(err, LLMQ_EUSAGE, "%llu bytes are still to be written", (unsigned long long)left);
    return fail_in(&w->entries[w->n_entries - 1], err);
}

/* Matrices with the same nonzero number, in one layer, are read as one. */
static int fused_with(int role)
{
    switch (role) {
    case LLMQ_ROLE_ATTN_Q:
    case LLMQ_ROLE_ATTN_K:
    case LLMQ_ROLE_ATTN_V:
        return 1;
    case LLMQ_ROLE_MLP_GATE:
    case LLMQ_ROLE_MLP_UP:
        return 2;
    default:
        return 0;
    }
}

static int is_fused(int role, int layer, int expert, const struct llmq_tensor *next)
{
    return layer == next->layer && expert == next->expert && fused_with(role) && fused_with(role) == fused_with(next->role);
}

static int continues(const struct llmq_writer *w, const struct llmq_tensor *t)
{
    const struct disk_tensor *last = w->n_entries ? &w->entries[w->n_entries - 1] : NULL;

    return last && is_fused(last->role, last->layer, last->expert, t);
}

/* Scales and zero points that wait go out, and entries learn where they stand. */
static int flush_kept(struct llmq_writer *w, struct llmq_err *err)
{
    for (int p = PART_SCALES; p < N_PARTS; p++) {
        if (!w->kept[p].len)
            continue;
        if (llmq_out_pad(&w->out, DISK_ALIGN, err))
            return err->code;
        for (size_t i = w->first_kept; i < w->n_entries; i++)
            if (w->entries[i].part[p].bytes)
                w->entries[i].part[p].offset += w->out.pos;
        if (llmq_out_write(&w->out, w->kept[p].data, w->kept[p].len, err))
            return err->code;
        llmq_str_clear(&w->kept[p]);
    }
    w->first_kept = w->n_entries;
    return 0;
}

/* The next entry, zeroed; NULL when there is no memory for more. */
static struct disk_tensor *new_entry(struct llmq_writer *w, struct llmq_err *err)
{
    if (w->n_entries == w->cap_entries) {
        size_t              cap = w->cap_entries ? 2 * w->cap_entries : 64;
        struct disk_tensor *p;

        if (LLMQ_NEW(&p, cap, "a directory", err))
            return NULL;
        if (w->n_entries)
            memcpy(p, w->entries, w->n_entries * sizeof *p);
        llmq_free(w->entries);
        w->entries = p;
        w->cap_entries = cap;
    }
    memset(&w->entries[w->n_entries], 0, sizeof *w->entries);
    return &w->entries[w->n_entries];
}

static void fill_entry(struct disk_tensor *d, const struct llmq_tensor *t)
{
    d->role = t->role;
    d->layer = t->layer;
    d->expert = t->expert;
    d->layout = t->layout;
    d->kind = t->scheme.kind;
    d->dtype = t->scheme.dtype;
    d->bits = t->scheme.bits;
    d->symmetric = t->scheme.symmetric;
    d->scale_dtype = t->scheme.scale_dtype;
    d->act = t->scheme.act;
    d->group = t->scheme.group;
    d->n = t->n;
    d->k = t->k;
    d->rel_err = t->rel_err;
    d->part[PART_DATA].bytes = t->data_bytes;
    d->part[PART_SCALES].bytes = t->scale_bytes;
    d->part[PART_ZEROS].bytes = t->zero_bytes;
}

static int check_tensor(const struct llmq_writer *w, struct llmq_tensor *t, struct llmq_err *err)
{
    uint32_t n, k;

    if (llmq_role_shape(&w->hparams, t->role, &n, &k))
        return llmq_fail(err, LLMQ_EFORMAT, "role %u is not known", t->role);
    if (t->n != n || t->k != k)
        return llmq_fail(err, LLMQ_EFORMAT, "%u x %u, but the hyperparameters make it %u x %u", t->n, t->k, n, k);
    return llmq_tensor_sizes(t, err);
}

/* Where the next data stands: a layer, and what follows the layers, on a page of its own. */
static size_t align_between(int layer, int next_layer) { return layer != next_layer ? DISK_PAGE : DISK_ALIGN; }

static size_t next_align(const struct llmq_writer *w, const struct llmq_tensor *t)
{
    return w->n_entries ? align_between(w->entries[w->n_entries - 1].layer, t->layer) : DISK_ALIGN;
}

static int begin_tensor(struct llmq_writer *w, const struct llmq_tensor *t, struct llmq_err *err)
{
    const char         *name = t->name ? t->name : "";
    struct disk_tensor *d;

    if (!continues(w, t) && flush_kept(w, err))
        return err->code;
    if (llmq_out_pad(&w->out, next_align(w, t), err) || llmq_str_append(&w->names, name, strlen(name) + 1, err))
        return err->code;
    d = new_entry(w, err);
    if (!d)
        return err->code;
    fill_entry(d, t);
    d->part[PART_DATA].offset = w->out.pos;
    for (int p = 0; p < N_PARTS; p++)
        w->left[p] = d->part[p].bytes;
    for (int p = PART_SCALES; p < N_PARTS; p++)
        d->part[p].offset = d->part[p].bytes ? w->kept[p].len : 0; /* from the first kept byte, until flush */
    w->n_entries++;
    return 0;
}

int llmq_writer_tensor(struct llmq_writer *w, const struct llmq_tensor *tensor, struct llmq_err *err)
{
    struct llmq_tensor t = *tensor;
    struct disk_tensor d = {.role = t.role, .layer = t.layer};

    if (check_whole(w, err))
        return err->code;
    if (check_tensor(w, &t, err) || begin_tensor(w, &t, err))
        return fail_in(&d, err);
    return 0;
}

int llmq_writer_bytes(struct llmq_writer *w, const void *bytes, size_t len, struct llmq_err *err)
{
    const char         *p = bytes;
    struct disk_tensor *d = w->n_entries ? &w->entries[w->n_entries - 1] : NULL;

    for (int part = 0; part < N_PARTS && len; part++) {
        size_t n = len < w->left[part] ? len : (size_t)w->left[part];

        if (!n || !d)
            continue;
        d->crc[part] = section_crc(d->crc[part], p, n);
        if (part == PART_DATA ? llmq_out_write(&w->out, p, n, err) : llmq_str_append(&w->kept[part], p, n, err))
            return err->code;
        w->left[part] -= n;
        p += n;
        len -= n;
    }
    return len ? llmq_fail(err, LLMQ_EUSAGE, "%zu bytes more than the tensor has", len) : 0;
}

int llmq_writer_put(struct llmq_writer *w, const struct llmq_tensor *tensor, struct llmq_err *err)
{
    struct llmq_tensor t = *tensor;

    if (llmq_writer_tensor(w, &t, err) || llmq_tensor_sizes(&t, err) ||
        llmq_writer_bytes(w, t.data, t.data_bytes, err) || llmq_writer_bytes(w, t.scales, t.scale_bytes, err))
        return err->code;
    return llmq_writer_bytes(w, t.zeros, t.zero_bytes, err);
}

/* ---- sections and the end ------------------------------------------------------------------- */

int llmq_writer_section(struct llmq_writer *w, int id, const void *bytes, size_t len, struct llmq_err *err)
{
    struct writer_section *s;
    const char            *name = llmq_section_name(id);
    int                    rc;

    if (!name || id > MAX_SECTION_ID)
        return llmq_fail(err, LLMQ_EUSAGE, "section %d is not known", id);
    s = &w->sections[id];
    if (s->stored.max)
        return llmq_fail(err, LLMQ_EUSAGE, "section '%s' is written twice", name);
    if (!len)
        return 0;
    llmq_str_init(&s->stored, max_section);
    rc = section_deflated(id) ? section_deflate(&s->stored, bytes, len, err) : llmq_str_append(&s->stored, bytes, len, err);
    if (rc)
        return llmq_fail_within(err, "section '%s'", name);
    s->disk.id = (uint32_t)id;
    s->disk.flags = (section_required(id) ? DISK_SECTION_REQUIRED : 0) | (section_deflated(id) ? DISK_SECTION_DEFLATED : 0);
    s->disk.stored_bytes = s->stored.len;
    s->disk.bytes = len;
    s->disk.crc = section_crc(0, bytes, len);
    s->disk.stored_crc = section_crc(0, s->stored.data, s->stored.len);
    memcpy(s->disk.name, name, strlen(name));
    return 0;
}

static int put_hparams(struct llmq_writer *w, struct llmq_err *err)
{
    const struct llmq_hparams *h = &w->hparams;
    struct disk_hparams        d = {
               .arch = h->arch, .n_layers = h->n_layers, .d_model = h->d_model, .n_heads = h->n_heads,
               .n_kv_heads = h->n_kv_heads, .head_dim = h->head_dim, .d_ff = h->d_ff, .n_vocab = h->n_vocab,
               .ctx_len = h->ctx_len, .tied = h->tied, .attn_bias = h->attn_bias, .mlp_bias = h->mlp_bias,
               .rope_type = h->rope_type, .rope_orig_ctx = h->rope_orig_ctx, .rope_theta = h->rope_theta,
               .rms_eps = h->rms_eps, .rope_factor = h->rope_factor, .rope_low = h->rope_low,
               .rope_high = h->rope_high, .rope_attn_factor = h->rope_attn_factor, .bos_id = h->bos_id,
               .n_eos = h->n_eos,
    };

    for (uint32_t i = 0; i < h->n_eos; i++)
        d.eos_id[i] = h->eos_id[i];
    return llmq_writer_section(w, LLMQ_SECTION_HPARAMS, &d, sizeof d, err);
}

static int write_sections(struct llmq_writer *w, uint32_t *count, struct llmq_err *err)
{
    *count = 0;
    for (int i = 0; i <= MAX_SECTION_ID; i++) {
        struct writer_section *s = &w->sections[i];

        if (!s->stored.max)
            continue;
        if (llmq_out_pad(&w->out, DISK_ALIGN, err))
            return err->code;
        s->disk.offset = w->out.pos;
        if (llmq_out_write(&w->out, s->stored.data, s->stored.len, err))
            return err->code;
        ++*count;
    }
    return 0;
}

static int append(struct llmq_writer *w, struct disk_header *h, const void *bytes, size_t len, struct llmq_err *err)
{
    h->dir_crc = section_crc(h->dir_crc, bytes, len);
    h->dir_bytes += len;
    return llmq_out_write(&w->out, bytes, len, err);
}

static int write_directory(struct llmq_writer *w, uint32_t n_sections, struct disk_header *h, struct llmq_err *err)
{
    struct disk_directory d = {.n_sections = n_sections, .n_tensors = (uint32_t)w->n_entries,
                               .section_bytes = sizeof(struct disk_section), .tensor_bytes = sizeof(struct disk_tensor)};

    if (llmq_out_pad(&w->out, DISK_ALIGN, err))
        return err->code;
    h->dir_offset = w->out.pos;
    if (append(w, h, &d, sizeof d, err))
        return err->code;
    for (int i = 0; i <= MAX_SECTION_ID; i++)
        if (w->sections[i].stored.max && append(w, h, &w->sections[i].disk, sizeof w->sections[i].disk, err))
            return err->code;
    return append(w, h, w->entries, w->n_entries * sizeof *w->entries, err);
}

static int write_header(struct llmq_writer *w, struct disk_header *h, struct llmq_err *err)
{
    memcpy(h->magic, DISK_MAGIC, sizeof h->magic);
    h->major = DISK_MAJOR;
    h->minor = DISK_MINOR;
    h->header_bytes = sizeof *h;
    h->file_bytes = w->out.pos;
    h->crc = section_crc(0, h, offsetof(struct disk_header, crc));
    return llmq_out_write_at(&w->out, 0, h, sizeof *h, err);
}

static int check_written(const struct llmq_writer *w, struct llmq_err *err)
{
    struct llmq_file *f;

    if (llmq_file_open(&f, w->out.tmp, err))
        return err->code;
    llmq_file_close(f);
    return 0;
}

int llmq_writer_close_file(struct llmq_writer *w, struct llmq_err *err)
{
    struct disk_header h = {0};
    uint32_t           n_sections;

    if (check_whole(w, err) || flush_kept(w, err) || put_hparams(w, err) ||
        llmq_writer_section(w, LLMQ_SECTION_NAMES, w->names.data, w->names.len, err) ||
        write_sections(w, &n_sections, err) || write_directory(w, n_sections, &h, err) || write_header(w, &h, err) ||
        llmq_out_sync(&w->out, err) || check_written(w, err))
        return err->code;
    w->closed = 1;
    return 0;
}

const char *llmq_writer_tmp_path(const struct llmq_writer *w) { return w->out.tmp; }

int llmq_writer_commit(struct llmq_writer *w, const char *as_path, struct llmq_err *err)
{
    if (!w->closed)
        return llmq_fail(err, LLMQ_EUSAGE, "%s: commit before the file is closed", w->out.path);
    if (llmq_out_finish_as(&w->out, as_path ? as_path : w->out.path, err))
        return err->code;
    llmq_writer_abort(w); /* nothing is left to abort: it releases memory */
    return 0;
}

int llmq_writer_finish(struct llmq_writer *w, const char *as_path, struct llmq_err *err)
{
    if (!llmq_writer_close_file(w, err) && !llmq_writer_commit(w, as_path, err))
        return 0;
    llmq_writer_abort(w);
    return err->code;
}

/* ---- sizes without writing ------------------------------------------------------------------ */

static uint64_t padded(uint64_t pos, uint64_t align) { return (pos + align - 1) / align * align; }

static uint64_t add_kept(uint64_t pos, uint64_t kept[2])
{
    for (int p = 0; p < 2; p++) {
        pos = kept[p] ? padded(pos, DISK_ALIGN) + kept[p] : pos;
        kept[p] = 0;
    }
    return pos;
}

uint64_t llmq_file_bytes(const struct llmq_tensor *tensors, size_t n, const uint64_t *sections, int n_sections)
{
    uint64_t pos = DISK_PAGE, kept[2] = {0, 0};

    for (size_t i = 0; i < n; i++) {
        const struct llmq_tensor *t = &tensors[i];

        if (i && !is_fused(t[-1].role, t[-1].layer, t[-1].expert, t))
            pos = add_kept(pos, kept);
        pos = padded(pos, i ? align_between(t[-1].layer, t->layer) : DISK_ALIGN) + t->data_bytes;
        kept[0] += t->scale_bytes;
        kept[1] += t->zero_bytes;
    }
    pos = add_kept(pos, kept);
    for (int i = 0; i < n_sections; i++)
        pos = padded(pos, DISK_ALIGN) + sections[i];
    return padded(pos, DISK_ALIGN) + sizeof(struct disk_directory) + (uint64_t)n_sections * sizeof(struct disk_section) +
           n * sizeof(struct disk_tensor);
}

int llmq_section_stored_bytes(int id, const void *bytes, size_t len, uint64_t *stored, struct llmq_err *err)
{
    struct llmq_str s = {.max = max_section};

    *stored = len;
    if (section_deflated(id) && section_deflate(&s, bytes, len, err))
        return llmq_fail_within(err, "section '%s'", llmq_section_name(id));
    if (section_deflated(id))
        *stored = s.len;
    llmq_str_fini(&s);
    return 0;
}
