/* llmq --version: see about.h.  Libraries are asked at run time: they may be newer than those of the build. */
#include "cli/about.h"

#include "cli/doc.h"
#include "cli/opt.h"
#include "cli/output.h"
#include "runner/cpu/isa.h"

#include "version.h"

#include <nettle/version.h>
#include <pcre2.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>
#include <zlib.h>

#ifdef __clang__
static const char compiler[] = "clang " __clang_version__;
#else
static const char compiler[] = "gcc " __VERSION__;
#endif

static const int cuda = 0; /* nothing runs there yet */

const char *cli_version(void) { return LLMQ_VERSION; }

struct library {
    const char *name;
    char        version[48];
};

enum { N_LIBRARIES = 5 };

static void list_libraries(struct library lib[N_LIBRARIES])
{
    static const char *const name[N_LIBRARIES] = {"zlib", "jansson", "nettle", "pcre2", "utf8proc"};
    char                     text[64] = "";

    for (int i = 0; i < N_LIBRARIES; i++)
        lib[i].name = name[i];
    snprintf(lib[0].version, sizeof lib[0].version, "%s", zlibVersion());
    snprintf(lib[1].version, sizeof lib[1].version, "%s", jansson_version_str());
    snprintf(lib[2].version, sizeof lib[2].version, "%d.%d", nettle_version_major(), nettle_version_minor());
    pcre2_config(PCRE2_CONFIG_VERSION, text); /* "10.42 2022-12-11" */
    snprintf(lib[3].version, sizeof lib[3].version, "%.*s", (int)strcspn(text, " "), text);
    snprintf(lib[4].version, sizeof lib[4].version, "%s", utf8proc_version());
}

static void print_text(const struct library lib[N_LIBRARIES])
{
    printf("llmq %s (%s)\ncompiler   %s\nfeatures   OpenMP %d, %s\nlibraries  ", LLMQ_VERSION, LLMQ_COMMIT, compiler, _OPENMP,
           cuda ? "CUDA" : "no CUDA");
    for (int i = 0; i < N_LIBRARIES; i++)
        printf("%s%s %s", i ? ", " : "", lib[i].name, lib[i].version);
    printf("\nCPU        compiled for:");
    for (int i = 0; i < CPU_ISA_COUNT; i++)
        printf(" %s", cpu_isa_name((enum cpu_isa)i));
    printf("; this machine has: %s\n", cpu_isa_name(cpu_isa_detect()));
}

static int print_document(const struct library lib[N_LIBRARIES], struct llmq_err *err)
{
    const char *found = cpu_isa_name(cpu_isa_detect());
    json_t     *doc = doc_new("llmq.version/1", NULL, found, 0), *features, *compiled = json_array(), *rest;

    features = json_pack("{s:b, s:i}", "cuda", cuda, "openmp", _OPENMP);
    for (int i = 0; i < N_LIBRARIES; i++)
        json_object_set_new(features, lib[i].name, json_string(lib[i].version));
    for (int i = 0; i < CPU_ISA_COUNT; i++)
        json_array_append_new(compiled, json_string(cpu_isa_name((enum cpu_isa)i)));
    rest = json_pack("{s:s, s:s, s:o, s:{s:o, s:s}}", "commit", LLMQ_COMMIT, "compiler", compiler, "features", features, "cpu",
                     "compiled", compiled, "found", found);
    if (!doc || !rest || json_object_update(doc, rest)) {
        json_decref(doc);
        doc = NULL;
    }
    json_decref(rest);
    return doc_print(doc, err);
}

int about_print(int json, struct llmq_err *err)
{
    struct library lib[N_LIBRARIES];

    list_libraries(lib);
    if (json)
        return print_document(lib, err);
    print_text(lib);
    return 0;
}
