/* SPDX-License-Identifier: MIT
 *
 * What the plugin uses of other programs: QEMU's plugin interface (version 4), glib's byte arrays
 * and the C library. The declarations are iolab's own, so that no header need be installed.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;
typedef unsigned long size_t;
#define NULL ((void *)0)
#define EXPORT __attribute__((visibility("default")))

/* The C library. */
extern void *calloc(size_t, size_t);
extern void *realloc(void *, size_t);
extern void free(void *);
extern void *memcpy(void *, const void *, size_t);
extern void *memset(void *, int, size_t);
extern int memcmp(const void *, const void *, size_t);
extern int strcmp(const char *, const char *);
extern int strncmp(const char *, const char *, size_t);
extern char *strchr(const char *, int);
extern size_t strlen(const char *);
extern int snprintf(char *, size_t, const char *, ...);
extern int sscanf(const char *, const char *, ...);
extern void *fopen(const char *, const char *);
extern char *fgets(char *, int, void *);
extern size_t fread(void *, size_t, size_t, void *);
extern size_t fwrite(const void *, size_t, size_t, void *);
extern int fflush(void *);
extern int fclose(void *);
extern void *mmap(void *, size_t, int, int, int, long);
extern void qsort(void *, size_t, size_t, int (*)(const void *, const void *));

/* glib: the arrays' public parts. */
struct bytes {
    u8 *data;
    u32 len;
};
struct array {
    char *data;
    u32 len;
};
extern struct bytes *g_byte_array_new(void);
extern struct bytes *g_byte_array_set_size(struct bytes *, u32);

/* QEMU. */
#define API_VERSION 4
struct info {
    const char *target_name;
    struct {
        int min, cur;
    } version;
    _Bool system_emulation;
    struct {
        int smp_vcpus, max_vcpus;
    } system;
};
struct tb;
struct insn;
struct scoreboard;
struct field {
    struct scoreboard *score;
    size_t offset;
};
struct register_description {
    void *handle;
    const char *name;
    const char *feature;
};
enum { NO_REGS, R_REGS, RW_REGS };
enum { ADD, STORE };
enum { NEVER, ALWAYS, EQUAL, NOT_EQUAL };
typedef void (*on_cpu)(u64 id, u32 cpu);
typedef void (*on_block)(u64 id, struct tb *);
typedef void (*on_exec)(u32 cpu, void *data);
typedef void (*on_exit)(u64 id, void *data);
extern void qemu_plugin_register_vcpu_init_cb(u64 id, on_cpu);
extern void qemu_plugin_register_vcpu_tb_trans_cb(u64 id, on_block);
extern void qemu_plugin_register_atexit_cb(u64 id, on_exit, void *);
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct tb *, on_exec, int flags, void *);
extern void qemu_plugin_register_vcpu_tb_exec_cond_cb(struct tb *, on_exec, int flags, int condition,
                                                      struct field, u64 value, void *);
extern void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct tb *, int op, struct field, u64);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct insn *, on_exec, int flags, void *);
extern void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct insn *, int op, struct field,
                                                                u64);
extern size_t qemu_plugin_tb_n_insns(const struct tb *);
extern u64 qemu_plugin_tb_vaddr(const struct tb *);
extern struct insn *qemu_plugin_tb_get_insn(const struct tb *, size_t);
extern size_t qemu_plugin_insn_data(const struct insn *, void *, size_t);
extern size_t qemu_plugin_insn_size(const struct insn *);
extern struct scoreboard *qemu_plugin_scoreboard_new(size_t);
extern void *qemu_plugin_scoreboard_find(struct scoreboard *, u32 cpu);
extern struct array *qemu_plugin_get_registers(void);
extern int qemu_plugin_read_register(void *handle, struct bytes *);
extern _Bool qemu_plugin_read_memory_vaddr(u64 address, struct bytes *, size_t);
extern void qemu_plugin_outs(const char *);

/* QEMU's own, no part of its interface: the processors, the one that runs in this thread, and bits
 * of the key by which a processor finds its translated blocks (accel/tcg/cpu-exec.c). tcc does not
 * know thread-local variables: what it builds observes machines of one processor. */
extern void *qemu_get_cpu(int index) __attribute__((weak));
extern void tcg_cflags_set(void *cpu, u32 bits) __attribute__((weak));
#ifdef __TINYC__
#define TELLS_CPU 0
static void *running_cpu(void)
{
    return NULL;
}
#else
extern __thread void *current_cpu __attribute__((weak));
#define TELLS_CPU (&current_cpu && &qemu_get_cpu && &tcg_cflags_set)
static void *running_cpu(void)
{
    return current_cpu;
}
#endif
