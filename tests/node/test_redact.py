import pytest

from wirespeed.node.redact import allowed_environment, redact_value, redact_words


def test_only_listed_variables_are_kept() -> None:
    environ = {
        "NCCL_IB_HCA": "mlx5",
        "GLOO_SOCKET_IFNAME": "eth0",
        "UCX_TLS": "rc",
        "OMPI_MCA_btl": "tcp",
        "FI_PROVIDER": "efa",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "TORCH_NCCL_BLOCKING_WAIT": "1",
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "node-0",
        "NCCL_IB_PKEY": "1",
        "HOME": "/root",
        "MY_NCCL_DEBUG": "INFO",
        "AWS_ACCESS_KEY_ID": "A",
        "CUDA_VISIBLE_DEVICES_OLD": "3",
    }
    kept = allowed_environment(environ)
    assert set(environ) - set(kept) == {
        "HOME",
        "MY_NCCL_DEBUG",
        "AWS_ACCESS_KEY_ID",
        "CUDA_VISIBLE_DEVICES_OLD",
    }
    assert list(kept) == sorted(kept)


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_API_TOKEN",
        "TORCH_HUB_KEY",
        "TORCH_KEY_FILE",
        "UCX_SECRET",
        "FI_PASSWORD",
        "FI_PASSWORD_FILE",
        "MASTER_PASSWD",
        "NCCL_CREDENTIAL",
        "OMPI_MCA_credentials",
        "OMPI_MCA_orte_precondition_transports",
        "TORCH_APIKEY",
        "TORCH_AUTH",
    ],
)
def test_names_that_speak_of_a_secret_are_dropped(name: str) -> None:
    assert allowed_environment({name: "x"}) == {}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("http://me:hunter2@proxy:3128/x", "http://***@proxy:3128/x"),
        ("http://me:hun/ter@2@proxy", "http://***@proxy"),
        ("s3+x://token@host", "s3+x://***@host"),
        ("a,me:hunter2@host", "a,***@host"),
        ("http://host/x?token=hunter2&y=1", "http://host/x?token=***&y=1"),
        ("https://b.s3/x?X-Amz-Signature=hunter2", "https://b.s3/x?X-Amz-Signature=***"),
        ("=mlx5_0:1,mlx5_1:1", "=mlx5_0:1,mlx5_1:1"),
        ("tcp://10.0.0.1:29500", "tcp://10.0.0.1:29500"),
        ("^lo,docker", "^lo,docker"),
        ("allreduce:ring,tree;broadcast:ring", "allreduce:ring,tree;broadcast:ring"),
    ],
)
def test_values(value: str, shown: str) -> None:
    assert redact_value(value) == shown
    assert allowed_environment({"NCCL_X": value}) == {"NCCL_X": shown}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("train.py --token=abc --lr 0.1", "train.py --token=*** --lr 0.1"),
        ("train.py --password abc -v", "train.py --password *** -v"),
        ("train.py --api-key abc", "train.py --api-key ***"),
        ("mpirun -x HF_TOKEN=abc -x NCCL_DEBUG=INFO", "mpirun -x HF_TOKEN=*** -x NCCL_DEBUG=INFO"),
        ("env --env WANDB_API_KEY=a,b prog", "env --env WANDB_API_KEY=*** prog"),
        ("get https://me:abc@host/p?a=1", "get https://***@host/p?a=1"),
        # What only sounds like one stays, and so does where one is found.
        (
            "train.py --max-tokens 100 --tokenizer gpt2",
            "train.py --max-tokens 100 --tokenizer gpt2",
        ),
        (
            "train.py --key-value-heads=8 --token-file t",
            "train.py --key-value-heads=8 --token-file t",
        ),
        ("prog --hosts a:4,me@b:4 --verbose-auth -x", "prog --hosts a:4,me@b:4 --verbose-auth -x"),
    ],
)
def test_secrets_of_a_command_line(words: str, told: str) -> None:
    assert redact_words(words.split()) == told.split()


@pytest.mark.parametrize(
    "word",
    [
        "Authorization: Bearer abc",
        "curl -H 'Authorization: Basic abc' https://host",
        "curl -H 'X-Api-Key: abc' https://host",
        "API_KEY=abc prog",
        "prog -v --token abc --lr 0.1",
        '{"token": "abc"}',
        "--db-password=abc def",
        "git clone https://me:abc@host/x.git",
    ],
)
def test_secrets_inside_one_word(word: str) -> None:
    (told,) = redact_words([word])
    assert "abc" not in told
    assert "***" in told
    assert redact_words([told]) == [told]
