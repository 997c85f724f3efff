"""What a file's name alone says about it: the lists behind `codex.trees.ignore`, as data.

Sources: GitHub Linguist's ideas of vendored and generated files, the package managers' own documents for their lock
files, and what OpenSSH, GnuPG, PostgreSQL, curl, pip, npm and the cloud tools document as holding credentials.
"""

import re

_VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".bzr", ".jj", "CVS", "_darcs"})

_VENDORED_FOLDERS = frozenset(
    {
        *("node_modules", "bower_components", "jspm_packages", "vendor", "vendored", "third_party", "thirdparty"),
        *("3rdparty", ".venv", "venv", "virtualenv", "site-packages", "__pycache__", ".tox", ".nox", ".eggs"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".gradle", ".terraform", ".next", ".nuxt"),
        *(
            ".yarn",
            ".pnpm-store",
            ".cargo",
            ".bundle",
            "Pods",
            "Carthage",
            ".dart_tool",
            ".cache",
            ".ipynb_checkpoints",
        ),
    }
)

_LOCK_FILES = frozenset(
    {
        *(
            "package-lock.json",
            "npm-shrinkwrap.json",
            "yarn.lock",
            "pnpm-lock.yaml",
            "bun.lock",
            "bun.lockb",
            "deno.lock",
        ),
        *("poetry.lock", "Pipfile.lock", "uv.lock", "pdm.lock", "pixi.lock", "conda-lock.yml", "Cargo.lock"),
        *("composer.lock", "Gemfile.lock", "go.sum", "go.work.sum", "flake.lock", "mix.lock", "rebar.lock"),
        *(
            "pubspec.lock",
            "Podfile.lock",
            "Package.resolved",
            "packages.lock.json",
            "gradle.lockfile",
            "buildscript-gradle.lockfile",
        ),
        *("MODULE.bazel.lock", ".terraform.lock.hcl", "cabal.project.freeze", "stack.yaml.lock", "Chart.lock"),
    }
)

_MINIFIED = re.compile(
    r"([.-]min\.(js|mjs|cjs|css|html))$|\.(bundle|chunk)\.(js|css)$|\.(js|mjs|cjs|css)\.map$", re.IGNORECASE
)

_NEVER_TEXT = frozenset(
    {
        *("png", "jpg", "jpeg", "gif", "bmp", "tif", "tiff", "ico", "icns", "webp", "avif", "heic", "psd", "xcf"),
        *("mp3", "mp4", "m4a", "m4v", "avi", "mov", "mkv", "webm", "ogg", "oga", "ogv", "flac", "wav", "aac"),
        *("zip", "gz", "tgz", "bz2", "xz", "zst", "lz4", "7z", "rar", "tar", "jar", "war", "whl", "egg", "deb", "rpm"),
        *("so", "o", "a", "dll", "dylib", "exe", "bin", "class", "pyc", "pyo", "pyd", "wasm", "elc", "beam"),
        *("pdf", "doc", "docx", "xls", "xlsx", "ppt", "pptx", "odt", "ods", "odp", "epub"),
        *("ttf", "otf", "woff", "woff2", "eot", "db", "sqlite", "sqlite3", "parquet", "arrow", "feather", "npy", "npz"),
        *("pt", "pth", "onnx", "gguf", "safetensors", "h5", "hdf5", "pkl", "pickle", "mo", "iso", "img", "dmg"),
    }
)

_SECRET_FOLDERS = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube", ".password-store"})
_SECRET_NAMES = frozenset(
    {
        *("id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "ssh_host_rsa_key"),
        *(
            "ssh_host_ecdsa_key",
            "ssh_host_ed25519_key",
            ".netrc",
            "_netrc",
            ".pgpass",
            ".my.cnf",
            ".htpasswd",
            ".pypirc",
        ),
        *(
            ".dockercfg",
            ".git-credentials",
            ".vault-token",
            ".s3cfg",
            ".boto",
            ".env",
            ".envrc",
            "credentials.tfrc.json",
        ),
    }
)
_SECRET_ENDINGS = (".pem", ".key", ".p8", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk", ".env")
_EXAMPLES = (".example", ".sample", ".template", ".dist", ".defaults")


def is_version_control(folder: str) -> bool:
    """Whether a folder of this name belongs to a version-control system."""
    return folder in _VERSION_CONTROL


def is_vendored_folder(folder: str) -> bool:
    """Whether a folder of this name holds other people's code, or a tool's leavings."""
    return folder in _VENDORED_FOLDERS or folder.endswith((".egg-info", ".dist-info"))


def is_lock_file(name: str) -> bool:
    """Whether a package manager writes a file of this name."""
    return name in _LOCK_FILES


def is_minified(name: str) -> bool:
    """Whether the name says that the file was squeezed or bundled by a tool."""
    return _MINIFIED.search(name) is not None


def is_never_text(name: str) -> bool:
    """Whether files with this ending are never text: they need not be read to know."""
    return "." in name and name.rpartition(".")[2].lower() in _NEVER_TEXT


def is_secret(path: str) -> bool:
    """Whether a file of this path is there to hold a secret. Examples and public halves are not."""
    *folders, name = path.split("/")
    if not _SECRET_FOLDERS.isdisjoint(folders):
        return True
    if name.endswith(_EXAMPLES):
        return False
    return name in _SECRET_NAMES or name.startswith(".env.") or name.lower().endswith(_SECRET_ENDINGS)
