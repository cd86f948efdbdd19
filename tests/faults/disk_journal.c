/* Preloaded into a process, records its writes and syncs below $JOURNAL_ROOT in $JOURNAL.

   Each event: kind 1 ('W' write, 'S' sync of a file, 'D' sync of a folder), inode 8, offset 8, length 8, content,
   then the tree after it: for each name "inode size type path\0", and an empty string. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *journal;
static char root[PATH_MAX];
static __thread int inside;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int watched(int fd) {
    char link[64], path[PATH_MAX];
    if (inside) return 0;
    if (!root[0]) {
        const char *found = getenv("JOURNAL_ROOT");
        if (!found || !realpath(found, path)) return 0;
        strcpy(root, path);
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return !strncmp(path, root, strlen(root));
}

static void list(const char *folder) {
    DIR *entries = opendir(folder);
    if (!entries) return;
    for (struct dirent *entry; (entry = readdir(entries));) {
        char path[PATH_MAX];
        struct stat found;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (lstat(path, &found)) continue;
        fprintf(journal, "%lu %ld %c %s", found.st_ino, (long)found.st_size, S_ISDIR(found.st_mode) ? 'd' : 'f',
                path + strlen(root) + 1);
        fputc(0, journal);
        if (S_ISDIR(found.st_mode)) list(path);
    }
    closedir(entries);
}

static void record(char kind, int fd, uint64_t offset, const struct iovec *parts, int count, uint64_t length) {
    struct stat file;
    pthread_mutex_lock(&lock);
    inside = 1;
    if (!journal) journal = fopen(getenv("JOURNAL"), "wb");
    fstat(fd, &file);
    if (kind == 'S' && S_ISDIR(file.st_mode)) kind = 'D';
    uint64_t header[3] = {file.st_ino, offset, length};
    fputc(kind, journal);
    fwrite(header, sizeof header, 1, journal);
    for (int part = 0; part < count && length; part++) {
        size_t size = parts[part].iov_len < length ? parts[part].iov_len : length;
        fwrite(parts[part].iov_base, size, 1, journal);
        length -= size;
    }
    list(root);
    fputc(0, journal);
    fflush(journal);
    inside = 0;
    pthread_mutex_unlock(&lock);
}

static void record_write(int fd, int64_t offset, const struct iovec *parts, int count, ssize_t length) {
    if (length <= 0 || !watched(fd)) return;
    if (offset < 0) offset = lseek(fd, 0, SEEK_CUR) - length;
    record('W', fd, offset, parts, count, length);
    if (fcntl(fd, F_GETFL) & O_DSYNC) record('S', fd, 0, NULL, 0, 0);
}

ssize_t write(int fd, const void *content, size_t size) {
    ssize_t length = REAL(write)(fd, content, size);
    record_write(fd, -1, &(struct iovec){(void *)content, size}, 1, length);
    return length;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    ssize_t length = REAL(writev)(fd, parts, count);
    record_write(fd, -1, parts, count, length);
    return length;
}

ssize_t pwrite(int fd, const void *content, size_t size, off_t offset) {
    ssize_t length = REAL(pwrite)(fd, content, size, offset);
    record_write(fd, offset, &(struct iovec){(void *)content, size}, 1, length);
    return length;
}

ssize_t pwrite64(int fd, const void *content, size_t size, off64_t offset) { return pwrite(fd, content, size, offset); }

int fsync(int fd) {
    int failed = REAL(fsync)(fd);
    if (!failed && watched(fd)) record('S', fd, 0, NULL, 0, 0);
    return failed;
}

int fdatasync(int fd) {
    int failed = REAL(fdatasync)(fd);
    if (!failed && watched(fd)) record('S', fd, 0, NULL, 0, 0);
    return failed;
}
